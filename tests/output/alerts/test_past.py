"""What earlier windows say of a host: new, persistent and rising ones, and what is usual in an hour of the week."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from cli.test_hosts import save
from commands import Run
from output.alerts.test_alerts import NOON, RESOLVER, SCANNER, kinds, machine_of, row, run, window
from superhosts.cli._alerts import policy_of
from superhosts.cli._options import AlertOptions
from superhosts.core.pairs import Window
from superhosts.core.units import SECOND
from superhosts.errors import UsageError
from superhosts.output.alerts.machine import AlertMachine, Event, Policy
from superhosts.output.alerts.past import FADE, Cell, Past, Usual, Week, hour_of, when_of
from superhosts.output.alerts.rules import Rule, rules_of
from superhosts.output.alerts.store import AlertStore
from superhosts.output.report import Row

HOUR = 3600
WEEKS = 7 * 24 * HOUR


def at(seconds: int, length: int = HOUR) -> Window:
    """Return a window that begins so many seconds after Monday, 2026-11-16T09:00:00Z."""
    start = (NOON + 45 * HOUR + seconds) * SECOND
    return Window(start, start + length * SECOND)


def stored(path: Path, rule: Rule, scan: Sequence[tuple[Window, list[Row]]]) -> list[Event]:
    """Take windows, each in a program of its own."""
    told = []
    for each, rows in scan:
        with closing(AlertStore(path)) as store:
            told += store.take(store.machine(Policy((rule,))), each, rows)
    return told


def test_the_days_of_the_week() -> None:
    assert [when_of(at(hours * HOUR)) for hours in (0, 15, 24, -10, 7 * 24 - 9)] == [
        "Mondays at 09:00",
        "Tuesdays at 00:00",
        "Tuesdays at 09:00",
        "Sundays at 23:00",
        "Mondays at 00:00",
    ]


# New, persistent and rising hosts


def test_a_host_is_new_if_it_was_not_seen_for_long_and_that_was_watched(tmp_path: Path) -> None:
    rule = Rule(threshold=1000, new="2h", quiet=1)
    usual, other = row(RESOLVER, 3000), row(SCANNER, 1500)
    scan = [(at(hour * HOUR), [usual]) for hour in range(6)]
    scan[0][1].append(other)  # nothing is known yet
    scan[4] = at(4 * HOUR), [usual, other, row("203.0.113.7", 1001)]
    opened = stored(tmp_path / "alerts.sqlite", rule, scan)
    assert [(each["event"], each["host"]) for each in opened] == [
        ("opened", SCANNER),
        ("opened", "203.0.113.7"),
        ("closed", SCANNER),
        ("closed", "203.0.113.7"),
    ]
    assert [each["new"] for each in opened[:2]] == ["new: last seen 3 h before", "new: not seen in the 4 h before"]
    assert [each["first_seen"] for each in opened[:2]] == ["2026-11-16T09:00:00Z", "2026-11-16T13:00:00Z"]
    assert all(each["new"] in each["text"] for each in opened[:2])
    assert opened == run_of(rule, scan)  # as without restarts


def run_of(rule: Rule, scan: Sequence[tuple[Window, list[Row]]]) -> list[Event]:
    machine = AlertMachine(Policy((rule,)))
    return [event for each, rows in scan for event in machine.take(each, rows)]


def test_a_host_that_the_cap_holds_back_is_new_in_the_next_window_too() -> None:
    machine = machine_of(Rule(threshold=1000, new="5m"), cap=1)
    hosts = [row(f"203.0.113.{number}", 2000 + number) for number in range(3)]
    told = run(machine, [[], [], hosts, hosts, hosts])
    assert kinds(told) == ["opened", "storm"] * 2 + ["opened", "closed"]  # of the storm
    assert len({each["host"] for each in told if each["event"] == "opened"}) == 3


def test_a_host_is_persistent_in_so_many_of_the_last_windows() -> None:
    rule = Rule(threshold=1000, persistent="3/5", quiet=9)
    there = [row(peers=1500)]
    assert run(machine_of(rule), [there, [], there, [], [], [], there, there]) == []
    (opened,) = run(machine_of(rule), [there, [], there, [], [row(peers=1200)]])
    assert (opened["persistence"], opened["peers"]) == ({"windows": 3, "of": 5}, 1200)
    assert "; in 3 of the last 5 windows" in opened["text"]
    almost = [row(peers=799)]  # fewer than 80 % of the threshold do not count as seen
    assert run(machine_of(rule), [there, almost, almost, there]) == []


def test_a_host_that_rises_is_told_with_its_change() -> None:
    rule = Rule(threshold=100, rises=2.4)
    assert run(machine_of(rule), [[row(peers=5000)], [row(peers=16_999)]]) == []
    (opened,) = run(machine_of(rule), [[row(peers=5000)], [row(peers=17_000)]])
    assert (opened["peers_before"], opened["change"]) == (5000, 12_000)
    assert "; +12,000 (+240 %) to the window before;" in opened["text"]
    (absent,) = run(machine_of(rule), [[], [row(peers=340)]])  # it had fewer than the rule asks for
    assert (absent["peers_before"], "change" in absent) == (None, False)
    assert "; not among the rows of the window before" in absent["text"]
    assert run(machine_of(rule), [[], [row(peers=339)]]) == []
    assert run(machine_of(rule), [[row(peers=340)]]) == []  # there is no window before
    machine = machine_of(rule)
    machine.take(window(0), [row(peers=200)])
    assert machine.take(window(9), [row(peers=9000)]) == []  # nor here


def test_what_is_said_of_one_window_is_not_said_of_a_later_one() -> None:
    machine = machine_of(Rule(threshold=100, quiet=99))
    machine.take(window(0), [row(peers=100)])
    (second,) = machine.take(window(1), [row(peers=250)])
    (later,) = machine.take(window(5), [row(peers=900)])
    assert (second["change"], "change" in later, "window before" in later["text"]) == (150, False, False)


def test_when_hosts_were_seen_is_bounded_and_survives_the_file(tmp_path: Path) -> None:
    past = Past(hosts=2)
    for number, key in enumerate("abcb"):
        past.note(key, 5)
        past.see(key, window(number))
        past.windows += 1
    assert past.seen("a") is None
    seen = past.seen("b")
    assert seen is not None
    assert (seen.first, seen.last, past.persistence("b", 4), past.persistence("b", 3)) == (
        window(1).start,
        window(3).end,
        3,  # with the window that comes now
        2,
    )
    again = Past(windows=past.windows)
    again.restore([("b", past.stored("b") or "")], [("b", *(past.stored_seen("b") or (0, 0, 0, "")))])
    assert again.seen("b") == seen
    past.windows += 1000
    assert past.persistence("b", 288) == 1


# What is usual in an hour of the week


def naive_usual(values: Sequence[tuple[int, int]], week: int) -> list[float]:
    """Return the quantiles of (week, peers), in which a week counts less than the one after it."""
    known = sorted((peers, FADE ** (week - at - 1)) for at, peers in values if at < week)
    found = []
    for share in (0.1, 0.5, 0.9):
        below, whole = 0.0, sum(weight for _, weight in known)
        for peers, weight in known:
            below += weight
            if below >= share * whole - 1e-9:
                found.append(float(peers))
                break
    return found


def test_what_is_usual_is_near_that_of_all_windows() -> None:
    dice, values, week = random.Random(5), [], Week()
    for number in range(5):
        for minute in range(0, 60, 5):
            each = at(number * WEEKS + 60 * minute, 300)
            week.turn(each)
            peers = round(dice.lognormvariate(6, 1))
            week.note(each, {"host": peers})
            values.append((number, peers))
        week.turn(at((number + 1) * WEEKS))
        found = week.usual("host", at((number + 1) * WEEKS))
        assert found is not None
        assert np.allclose(found, naive_usual(values, number + 1), rtol=0.03, atol=1)
    absent = week.usual("other", at(5 * WEEKS))
    assert absent == Usual(0, 0, 0)


def test_older_windows_may_be_learned_after_newer_ones() -> None:
    cells = [Cell(7), Cell(7), Cell(3)]
    for cell, weeks in zip(cells, ([3, 5, 6, 7], [7, 6, 5, 3], [3, 5, 6, 7]), strict=True):
        for each in weeks:
            cell.note(each, 100)
    counts = [pytest.approx(sum(cell.at(8).values())) for cell in cells]
    assert counts == [1 + FADE + FADE**2 + FADE**4] * 3


WEEKLY = Rule(threshold=50, times_usual=3, baseline="week")


def weekly(weeks: int, host: str = RESOLVER) -> Iterator[tuple[Window, list[Row]]]:
    """Yield windows of some weeks, an hour each: on Mondays at 09:00 there are 600 peers, at other hours 60."""
    for hour in range(weeks * 7 * 24):
        yield at(hour * HOUR), [row(host, 600 if hour % 168 == 0 else 60)]


def test_the_hour_of_the_week_decides_after_a_week(tmp_path: Path) -> None:
    scan = list(weekly(1))
    scan[30] = scan[30][0], [row(RESOLVER, 90_000)]  # in the first week nothing is told
    scan += [(at(WEEKS), [row(RESOLVER, 700), row(SCANNER, 55)])]  # as usual, and one that is not there on Mondays
    scan += [(at(WEEKS + HOUR), [row(RESOLVER, 700)])]  # a lot for 10:00
    told = run_stored(tmp_path / "alerts.sqlite", scan)
    assert [(each["event"], each["host"], each["threshold"]) for each in told] == [
        ("opened", SCANNER, 50),
        ("opened", RESOLVER, 180),
    ]
    assert (told[1]["usual_low"], told[1]["usual_high"], told[1]["usual_when"]) == (60, 60, "Mondays at 10:00")
    assert "; usually 60 peers on Mondays at 10:00 UTC" in told[1]["text"]
    assert "; usually not among the rows on Mondays at 09:00 UTC" in told[0]["text"]
    restarted = AlertStore(tmp_path / "restarted.sqlite")
    again = []
    for number, (each, rows) in enumerate(scan):
        if number % 40 == 0:
            restarted.close()
            restarted = AlertStore(tmp_path / "restarted.sqlite")
            machine = restarted.machine(Policy((WEEKLY,)))
        again += restarted.take(machine, each, rows)
    restarted.close()
    assert again == told


def run_stored(path: Path, scan: Sequence[tuple[Window, list[Row]]]) -> list[Event]:
    with closing(AlertStore(path)) as store:
        machine = store.machine(Policy((WEEKLY,)))
        return [event for each, rows in scan for event in store.take(machine, each, rows)]


def test_windows_that_were_noted_are_not_noted_again(tmp_path: Path) -> None:
    scan, path = list(weekly(2)), tmp_path / "alerts.sqlite"
    run_stored(path, scan)
    before = content(path)
    assert len({hour for hour, *_ in before}) == 168
    with closing(AlertStore(path)) as store:
        machine = store.machine(Policy((WEEKLY,)))
        assert not any(store.learn(machine, each, rows) for each, rows in scan)
    run_stored(path, scan)
    assert content(path) == before


def content(path: Path) -> list[tuple[int, str, int, str]]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT hour, key, week, content FROM usual ORDER BY hour, key").fetchall()


def test_sketches_may_be_learned_while_a_run_goes_on(tmp_path: Path) -> None:
    path, scan = tmp_path / "alerts.sqlite", list(weekly(2))
    half = len(scan) // 2
    with closing(AlertStore(path)) as running, closing(AlertStore(path)) as teacher:
        machine, other = running.machine(Policy((WEEKLY,))), teacher.machine(Policy())
        running.take(machine, *scan[half])
        for number, (each, rows) in enumerate(reversed(scan[:half])):
            assert teacher.learn(other, each, rows)
            if number == 50:
                running.take(machine, *scan[half + 1])
        assert not teacher.learn(other, *scan[half])  # the run has learned that itself
        assert (again := teacher.machine(Policy())).latest == machine.latest == scan[half + 1][0].end
        assert again.past.windows == 2
        (opened,) = running.take(machine, at(WEEKS + 2 * HOUR), [row(RESOLVER, 700)])  # it knows the first week now
        assert (opened["usual_low"], opened["usual_high"]) == (60, 60)
        assert machine.week.began == scan[0][0].start
    with closing(AlertStore(path)) as again:
        assert again.machine(Policy((WEEKLY,))).week.began == scan[0][0].start


def test_a_program_that_learns_overwrites_no_cell_of_a_run(tmp_path: Path) -> None:
    minutes = [at(60 * number - (WEEKS if number else 0), 60) for number in (0, 30, 25)]
    with closing(AlertStore(tmp_path / "a.sqlite")) as running, closing(AlertStore(tmp_path / "a.sqlite")) as teacher:
        machine, other = running.machine(Policy((WEEKLY,))), teacher.machine(Policy())
        assert teacher.learn(other, minutes[1], [row()])
        running.take(machine, minutes[0], [row()])
        assert teacher.learn(other, minutes[2], [row()])
    cells = {key: json.loads(text) for _, key, _, text in content(tmp_path / "a.sqlite")}
    assert [sum(each.values()) for each in cells[""]] == [1, 2]  # of the run's week, and of the one before


def test_this_week_does_not_count_yet() -> None:
    week, hour = Week(), [at(60 * number, 60) for number in range(60)]
    for before in (-WEEKS, 0):
        for number in range(50):
            each = at(60 * number + before, 60)
            week.turn(each)
            week.note(each, {"host": 40 if before else 9000})
    assert week.usual("host", hour[50]) == Usual(40, 40, 40)


def test_cells_that_cannot_be_read_end_no_run(tmp_path: Path) -> None:
    for number, wrong in enumerate(("[]", "{", "[{}, 5]", '[{"x": 1}, {}]')):
        path = tmp_path / f"{number}.sqlite"
        with closing(AlertStore(path)) as store:
            machine = store.machine(Policy((WEEKLY,)))
            store.take(machine, at(0), [row()])
            with closing(sqlite3.connect(path)) as database:
                database.execute("UPDATE usual SET content = ?", (wrong,))
                database.commit()
            store.take(machine, at(HOUR), [row()])
            assert store.take(machine, at(WEEKS), [row(peers=90_000)]) == []
            assert "damaged" in store.trouble


def test_hosts_of_an_hour_are_bounded_and_forgotten(tmp_path: Path) -> None:
    week = Week(most=5)
    week.turn(at(0))
    week.note(at(0), {f"host {number}": 9 for number in range(50)})
    assert len(week.changed) == 5
    cells = {key: cell for (_, key), cell in week.changed.items() if cell is not None}
    kept = Week(lambda _: [(key, cell.week, cell.text) for key, cell in cells.items()])
    kept.turn(at(4 * WEEKS))
    assert kept.usual("host 1", at(4 * WEEKS)) is None  # one window, a month ago
    assert set(kept.changed.values()) == {None}


def test_a_disk_that_is_full_keeps_what_was_learned_for_the_next_window(tmp_path: Path) -> None:
    week = Week()
    for number in range(3):
        week.turn(at(number * HOUR))
        week.note(at(number * HOUR), {"host": 9})
    week.turn(at(0))  # before anything was stored
    week.note(at(WEEKS), {"host": 9})
    week.turn(at(WEEKS))
    assert week.usual("host", at(WEEKS)) == Usual(9, 9, 9)
    assert week.usual("host", at(HOUR)) is None  # of another hour nothing is in memory


def test_saved_sketches_teach_what_is_usual(run: Run, tmp_path: Path) -> None:
    folder, file = tmp_path / "archive", tmp_path / "alerts.sqlite"
    for number in range(3):
        save(folder / f"{number}.cube", "ams", NOON * SECOND + number * 300 * SECOND)
    first = run("alerts", "learn", file, folder, "--threshold", 20)
    assert f"{file}: 3 new windows of 3 learned; 2026-11-14T12:00:00Z to 2026-11-14T12:15:00Z is known now" in first.err
    cells = content(file)
    assert {hour for hour, *_ in cells} == {hour_of(window(0))}
    assert sum(key != "" for _, key, *_ in cells) >= 1
    assert json.loads(next(text for _, key, _, text in cells if key == "")) == [{"0": 3.0}, {}]
    save(folder / "older.cube", "ams", (NOON - 600) * SECOND)
    save(folder / "newer.cube", "ams", (NOON + 3600) * SECOND)
    (folder / "wrong.cube").write_bytes(b"no sketch")
    again = run("alerts", "learn", file, folder, "--threshold", 20)
    assert "2 new windows of 5 learned; 2026-11-14T11:50:00Z to 2026-11-14T13:05:00Z is known now" in again.err
    with closing(AlertStore(file)) as store:
        machine = store.machine(Policy((WEEKLY,)))
        machine.week.turn(at(WEEKS - 45 * HOUR))
        learned = {key: machine.week.usual(key, at(WEEKS - 45 * HOUR)) for _, key, *_ in cells if key}
    assert all(each is not None and each.middle >= 20 for each in learned.values())
    assert run("alerts", "learn", file, tmp_path / "none").status == 3


def test_rules_about_the_past_are_read_and_refused() -> None:
    table = {"new": "7d", "persistent": "9/12", "rises": 2.4, "times-usual": 5, "baseline": "week"}
    (rule,) = rules_of([table], "file")
    assert (rule.new_after, rule.least_windows, rule.baseline) == (WEEKS * SECOND, (9, 12), "week")
    assert rule.words == (
        "many-peers: inner hosts with 1,024 peers or more, and 5 times the usual number of that hour of the week,"
        " and not seen for 7d, and in 9 of the last 12 windows, and +240 % to the window before"
    )
    wrong: list[tuple[dict[str, object], str]] = [
        ({"new": "soon"}, "new 'soon'"),
        ({"persistent": "12/9"}, "write it like 9/12"),
        ({"persistent": "9 of 12"}, "write it like 9/12"),
        ({"persistent": "9/289"}, "at most 288 windows"),
        ({"rises": 0}, "rises 0: must be at least 0.1"),
        ({"baseline": "month", "times-usual": 2}, "one of windows, week"),
        ({"baseline": "week"}, "needs times-usual"),
        ({"baseline": 5}, "must be text"),
    ]
    for given, said in wrong:
        with pytest.raises(UsageError, match=f"^file: rule 1: .*{said}"):
            rules_of([given], "file")


def test_the_baseline_of_all_rules(tmp_path: Path) -> None:
    def rules(*lines: str, baseline: str | None = "week") -> list[tuple[float | None, str]]:
        path = tmp_path / "superhosts.toml"
        path.write_text("\n".join(lines))
        policy = policy_of(AlertOptions(baseline=baseline), path)
        return [(rule.times_usual, rule.baseline) for rule in policy.rules]

    first, second = ("[[rule]]", "times-usual = 5"), ("[[rule]]", "name = 'b'")
    assert rules() == [(3.0, "week")]
    assert rules(baseline=None) == [(None, "windows")]
    assert rules(*first, *second) == [(5, "week"), (None, "windows")]
    assert rules(*first, "baseline = 'windows'", *second, "times-usual = 2") == [(5, "windows"), (2, "week")]
    with pytest.raises(UsageError, match="--baseline week: no rule has times-usual"):
        rules(*second)


def test_a_run_says_that_it_learns(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capture = Path(__file__).parents[2] / "first_hour" / "captures" / "services.pcap.gz"
    given = ("scan", capture, "--json", "--inner", "private", "--alerts", tmp_path / "alerts.sqlite")
    told = run(*given, "--baseline", "week", "--web-url", "https://hub.example/x/")
    assert "and 3 times the usual number of that hour of the week" in told.err
    assert 'rules with baseline = "week" open no alerts in their first week' in told.err
    assert "becomes a setting" not in told.err  # it never was an option
    assert run("alerts", "export", tmp_path / "alerts.sqlite").rows == []
    for wrong in ("hub.example", "ftp://hub.example", "https://", "https://hub.example/#/alerts"):
        ended = run(*given, "--web-url", wrong)
        assert (ended.status, "is not an address like https://" in ended.err) == (2, True)
