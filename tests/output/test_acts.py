"""Destinations that act: the manners that all of them have, with lists and programs as the means."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from acting import ENDLESS, ActingRun, acts_of, alert, alerts, held, options
from commands import Run
from output.test_senders import make_hook
from superhosts.errors import InputError, OutputError, UsageError
from superhosts.output import acts as module
from superhosts.output.acts import CLOSED, FORBIDDEN, Acting, Change, Ledger, ledger_beside
from superhosts.output.alerts.machine import AlertMachine, Policy
from superhosts.output.alerts.rules import Rule, never_act
from superhosts.output.alerts.store import AlertDesk, AlertStore
from superhosts.output.registry import OutputOptions, check_addresses, open_destination, withdraw_left_behind
from superhosts.output.report import Report
from waiting import wait_for

SCANNER, OTHER, THIRD, SIX = "203.0.113.9", "198.51.100.7", "192.0.2.8", "2001:db8:5::9"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL", 0.02)


class Opened:
    """A destination that acts in this process, beside a ledger and a list in a folder."""

    def __init__(self, folder: Path, address: str = "", **more: Any) -> None:
        self.folder, self.ledger, self.list = folder, folder / "alerts.acts.sqlite", folder / "blocked.txt"
        self.said: list[str] = []
        self.destination = open_destination(address or self.address(), ENDLESS, options(self.ledger, self.said.append))
        assert isinstance(self.destination, Acting)

    def address(self, query: str = "act=true") -> str:
        return f"list:{self.folder / 'blocked.txt'}?{query}"

    @property
    def lines(self) -> list[str]:
        return self.list.read_text().splitlines() if self.list.exists() else []

    def open(self, *events: str | dict[str, Any]) -> None:
        made = [alert(each) if isinstance(each, str) else each for each in events]
        self.destination.keep_open(lambda: made)

    def wait(self, *lines: str) -> None:
        wait_for(lambda: sorted(self.lines) == sorted(lines), lambda: f"{lines}: {self.lines}, {self.said}")

    def hears(self, text: str) -> None:
        wait_for(lambda: any(text in each for each in self.said), lambda: f"{text}: {self.said}")

    def states(self) -> dict[str, str]:
        return {act.host: act.state for act in acts_of(self.ledger)}


@contextmanager
def opened(folder: Path, query: str = "act=true", address: str = "") -> Iterator[Opened]:
    made = Opened(folder, address or f"list:{folder / 'blocked.txt'}?{query}")
    try:
        yield made
    finally:
        made.destination.abandon()


def test_an_act_lasts_as_long_as_its_alert_is_open(tmp_path: Path) -> None:
    with opened(tmp_path) as acting:
        acting.open(SCANNER, SIX, alert(OTHER, act=False))
        acting.wait(SCANNER, SIX)
        acting.hears(f"ACTED against {SCANNER} until ")
        assert acting.states() == {SCANNER: "in force", SIX: "in force"}
        acting.open(SIX)
        acting.wait(SIX)
        acting.hears(f"WITHDRAWN: {SCANNER}: its alert is closed (rule scan, alert id-{SCANNER})")
        wait_for(lambda: acting.states() == {SIX: "in force"}, "the ledger forgets it")
        assert acting.destination.status()["rows"] == 2


def test_nothing_is_done_unless_it_is_asked_for(tmp_path: Path) -> None:
    with opened(tmp_path, "most=1") as acting:
        acting.open(SCANNER, alert(OTHER, peers=1100), "10.0.0.1")
        acting.hears(f"WOULD ACT against {SCANNER} until ")
        acting.hears(f"NOT ACTED against {OTHER}: 1 act in force, the most that are allowed")
        acting.hears("NOT ACTED against 10.0.0.1: never act")
        (act,) = (each for each in acts_of(acting.ledger) if each.state == "in force")
        assert act.dry
        acting.open()
        acting.hears(f"WOULD WITHDRAW {SCANNER}: its alert is closed")
        assert not acting.list.exists()


def test_nobody_acts_against_some_hosts_whatever_the_alerts_say(tmp_path: Path) -> None:
    spared = ("10.0.0.1", "8.8.8.8", "2001:4860:4860::8888", "127.0.0.1", "fe80::1", "8.8.8.0/24", "ten", "1.2.3.4:80")
    with opened(tmp_path) as acting:
        acting.open(*spared, alert(OTHER, act=False), SCANNER)
        acting.wait(SCANNER)
        for host in spared:
            acting.hears(f"NOT ACTED against {host}: never act")
        acting.open(*spared, alert(SCANNER, act=False))  # A list that was read again names it.
        acting.wait()
        acting.hears(f"WITHDRAWN: {SCANNER}: {FORBIDDEN}")
        acting.open(alert(OTHER, act=False), OTHER)  # The alert of another rule allows it.
        acting.wait(OTHER)


def test_a_list_of_never_act_that_changes_withdraws(tmp_path: Path) -> None:
    """The open events, which the destination follows, are those of the lists of now."""
    machine = AlertMachine(Policy([Rule(name="scan", side="outer", threshold=10)], never_act=never_act()))
    from output.alerts.test_alerts import row, window

    machine.take(window(1), [row(SCANNER, 50, side="outer")])
    assert [event["act"] for event in machine.open_events()] == [True]
    machine.reload(Policy(machine.policy.rules, never_act=never_act(["203.0.113.0/24"])))
    assert [event["act"] for event in machine.open_events()] == [False]


def test_most_acts_are_those_against_the_largest_and_others_follow_when_there_is_room(tmp_path: Path) -> None:
    with opened(tmp_path, "act=true&most=2") as acting:
        events = [alert(SCANNER, peers=100), alert(OTHER, peers=300), alert(THIRD, peers=200)]
        acting.open(*events)
        acting.wait(OTHER, THIRD)
        acting.hears(f"NOT ACTED against {SCANNER}: 2 acts in force")
        time.sleep(0.2)
        assert sum(SCANNER in each for each in acting.said) == 1
        acting.open(*events[:2])
        acting.wait(OTHER, SCANNER)


def test_an_act_expires_and_growth_begins_another_one(tmp_path: Path) -> None:
    with opened(tmp_path, "act=true&expires=1s") as acting:
        acting.open(alert(SCANNER, until="2100-01-01T00:00:00Z"))
        acting.wait(SCANNER)
        acting.wait()
        acting.hears(f"WITHDRAWN: {SCANNER}: expired")
        wait_for(lambda: acting.states() == {SCANNER: "over"}, "it is over")
        acting.destination.write(Report(rows=[alert(SCANNER, event="grown")]))
        acting.wait(SCANNER)
        acting.open()
        wait_for(lambda: acting.states() == {}, "it is forgotten")


def test_an_act_is_renewed_while_its_alert_goes_on(tmp_path: Path) -> None:
    with opened(tmp_path, "act=true&expires=1s&renew=true") as acting:
        acting.open(alert(SCANNER, until="2100-01-01T00:00:00Z"))
        acting.wait(SCANNER)
        (first,) = acts_of(acting.ledger)
        wait_for(lambda: acts_of(acting.ledger)[0].expires > first.expires + 1.5, "it is renewed")
        assert acting.lines == [SCANNER]
        acting.open(alert(SCANNER, until="2026-01-01T00:00:00Z"))  # It was not seen any more.
        acting.hears(f"WITHDRAWN: {SCANNER}: expired")


def test_alerts_of_a_window_long_ago_lead_to_no_act(tmp_path: Path) -> None:
    with opened(tmp_path) as acting:
        acting.open(alert(SCANNER, until="2026-03-02T09:06:00Z"))
        acting.hears(f"NOT ACTED against {SCANNER}: its last window ended at 2026-03-02T09:06:00Z")
        assert acting.lines == []


def test_the_end_of_a_run_withdraws_unless_acts_are_kept(tmp_path: Path) -> None:
    for query, left in (("act=true", []), ("act=true&at-end=keep", [SCANNER])):
        with opened(tmp_path, query) as acting:
            acting.open(SCANNER)
            acting.wait(SCANNER)
        assert acting.lines == left
        assert held(acting.ledger) == set(left)
    with opened(tmp_path) as acting:  # Nothing is done before the run says which alerts are open.
        time.sleep(0.2)
        assert acting.lines == [SCANNER]
        acting.list.unlink()
        acting.open(SCANNER)
        acting.wait(SCANNER)  # what is in the ledger is put in force again
        acting.open()
        acting.wait()


def test_a_run_that_only_tries_withdraws_what_an_earlier_one_has_done(tmp_path: Path) -> None:
    with opened(tmp_path, "act=true&at-end=keep") as acting:
        acting.open(SCANNER)
        acting.wait(SCANNER)
    with opened(tmp_path, "at-end=keep") as acting:
        acting.open(SCANNER)
        acting.wait()
        acting.hears(f"WOULD ACT against {SCANNER}")
    with opened(tmp_path) as acting:
        acting.open(SCANNER)
        acting.wait(SCANNER)


def test_a_destination_that_no_run_names_any_more_is_withdrawn(tmp_path: Path) -> None:
    with opened(tmp_path, "act=true&at-end=keep") as acting:
        acting.open(SCANNER)
        acting.wait(SCANNER)
    (left,) = withdraw_left_behind(options(acting.ledger), [])
    left.keep_open(alerts(SCANNER))
    acting.wait()
    left.close()
    assert acting.states() == {}


def test_a_reload_hands_acts_from_one_destination_to_the_next(tmp_path: Path) -> None:
    """With other options the same place stays in force; a place that is given up is withdrawn."""
    before, after = Opened(tmp_path), Opened(tmp_path, f"list:{tmp_path / 'blocked.txt'}?act=true&most=5")
    other = Opened(tmp_path, f"list:{tmp_path / 'other.txt'}?act=true&at-end=keep")
    other.list = tmp_path / "other.txt"
    desk = AlertDesk(AlertStore(tmp_path / "alerts.sqlite"), Policy(), [before.destination, other.destination], print)
    before.open(SCANNER)
    other.open(SCANNER)
    after.open(SCANNER)
    other.wait(SCANNER)
    after.wait(SCANNER)
    left = desk.exchange([after.destination])
    after.open(SCANNER)
    assert left == [before.destination, other.destination]
    for each in left:
        each.close()
    assert other.lines == []
    after.wait(SCANNER)
    desk.close()
    assert after.lines == []


def test_an_alert_that_is_opened_again_before_the_withdrawal_is_done_leads_to_an_act(tmp_path: Path) -> None:
    with opened(tmp_path) as acting:
        acting.open(SCANNER)
        acting.wait(SCANNER)
        (act,) = acts_of(acting.ledger)
    acting.list.write_text(f"{SCANNER}\n")
    ledger = Ledger(acting.ledger)
    ledger.change([Change(None, replace(act, state="ending", why=CLOSED))])
    ledger.close()
    with opened(tmp_path) as acting:
        acting.open(SCANNER)
        acting.hears(f"WITHDRAWN: {SCANNER}")
        acting.wait(SCANNER)


def test_withdrawals_are_repeated_until_they_succeed(tmp_path: Path) -> None:
    done, broken = tmp_path / "done", tmp_path / "broken"
    hook = make_hook(
        tmp_path, f"[ $1 = unban ] && [ -e {broken} ] && echo no route >&2 && exit 1", f"echo $1 >> {done}"
    )
    broken.touch()
    with opened(tmp_path, address=f"{hook}?contract=1&act=true") as acting:
        acting.open(SCANNER)
        wait_for(done.exists, "it acts")
        acting.open()
        acting.hears(f"NOT WITHDRAWN: {SCANNER}: the program ended with status 1: no route; retrying")
        assert acting.states() == {SCANNER: "ending"}
        broken.unlink()
        acting.destination.reopen()
        wait_for(lambda: acting.states() == {}, "it is withdrawn")
    assert done.read_text().split() == ["ban", "unban"]


def test_what_cannot_be_withdrawn_at_the_end_is_told_and_done_by_the_next_run(tmp_path: Path) -> None:
    done, broken = tmp_path / "done", tmp_path / "broken"
    hook = make_hook(tmp_path, f"[ $1 = unban ] && [ -e {broken} ] && exit 75", f"echo $1 >> {done}")
    acting = Opened(tmp_path, f"{hook}?contract=1&act=true")
    acting.open(SCANNER)
    wait_for(done.exists, "it acts")
    broken.touch()
    assert isinstance(acting.destination, Acting)
    acting.destination._options.wait = 0.5
    with pytest.raises(OutputError, match=r"1 act NOT WITHDRAWN; the next run does it, or superhosts acts withdraw"):
        acting.destination.close()
    broken.unlink()
    with opened(tmp_path, address=f"{hook}?contract=1&act=true") as again:
        again.open()
        wait_for(lambda: again.states() == {}, "it is withdrawn")
    assert done.read_text().split() == ["ban", "unban"]


def test_what_a_program_refuses_is_withdrawn_as_a_part_of_it_may_have_happened(tmp_path: Path) -> None:
    done = tmp_path / "done"
    hook = make_hook(tmp_path, f"echo $1 >> {done}", "[ $1 = unban ] || exit 3")
    with opened(tmp_path, address=f"{hook}?contract=1&act=true") as acting:
        acting.open(SCANNER)
        acting.hears(f"NOT ACTED against {SCANNER}: the program ended with status 3")
        wait_for(lambda: acting.states() == {SCANNER: "over"}, "it is over")
    assert done.read_text().split() == ["ban", "unban"]


def test_a_program_with_the_contract_of_this_project(tmp_path: Path) -> None:
    out = tmp_path / "out"
    hook = make_hook(tmp_path, f'printf "%s|" "$@" "$SUPERHOSTS_CONTRACT" >> {out}', f"cat >> {out}")
    with opened(tmp_path, address=f"{hook}?contract=1&act=true") as acting:
        acting.open("2001:db8:7::/64")
        wait_for(out.exists, "it acts")
        acting.hears("ACTED")
    ban, unban = (line.split("|", 3) for line in out.read_text().splitlines())
    assert (ban[:3], unban[:3]) == (["ban", "2001:db8:7::/64", "1"], ["unban", "2001:db8:7::/64", "1"])
    first, last = json.loads(ban[3]), json.loads(unban[3])
    assert list(first) == ["contract", "action", "host", "family", "expires", "why", "alert"]
    assert (first["contract"], first["action"], first["family"], first["why"]) == (1, "ban", 6, "")
    assert (last["action"], last["why"], last["expires"]) == ("unban", "the run ends", first["expires"])
    assert first["alert"]["alert"] == "id-2001:db8:7::/64"


FASTNETMON = """
case "$4" in
  ban) details=$(cat); echo "$1 $2 $3 $4 $(echo "$details" | head -n 1)" >> OUT ;;
  unban) echo "$1 $2 $3 $4 $(cat | wc -c)" >> OUT ;;
  *) echo "unknown: $*" >> OUT ;;
esac
"""


def test_a_program_with_the_contract_of_fastnetmon(tmp_path: Path) -> None:
    out = tmp_path / "out"
    hook = make_hook(tmp_path, *FASTNETMON.replace("OUT", str(out)).splitlines())
    events = [
        alert(SCANNER),
        alert(OTHER, direction="unanswered-in", peers=None, peers_low=900),
        alert(SIX, direction="any"),
        alert("2001:db8:7::/64"),
    ]
    with opened(tmp_path, address=f"{hook}?contract=fastnetmon&act=true") as acting:
        acting.open(*events)
        acting.hears("NOT ACTED against 2001:db8:7::/64: FastNetMon's scripts know addresses, no prefixes")
        wait_for(lambda: out.exists() and len(out.read_text().splitlines()) == 3, "it acts")
    lines = out.read_text().splitlines()
    banned = {
        f"{SCANNER} outgoing 1500 ban IP: {SCANNER}",
        f"{OTHER} incoming 900 ban IP: {OTHER}",
        f"{SIX} outgoing 1500 ban IP: {SIX}",
    }
    assert set(lines[:3]) == banned
    assert set(lines[3:]) == {f"{line.partition(' ban')[0]} unban 0" for line in banned}


def test_lines_of_lists(tmp_path: Path) -> None:
    for query, line in (
        ("format=plain", "{}"),
        ("format=iprep", "{},1,100"),
        ("format=iprep&category=7&score=30", "{},7,30"),
        ("format=dataset", "{}"),
    ):
        with opened(tmp_path, f"act=true&{query}") as acting:
            acting.open(SCANNER, SIX)
            acting.wait(line.format(SCANNER), line.format(SIX))
            acting.open()
            acting.wait()
    with opened(tmp_path, "act=true&format=dataset") as acting:
        acting.open("2001:db8:7::/64")
        acting.hears("a dataset has addresses, no prefixes")
    with opened(tmp_path) as acting:
        acting.open("2001:db8:7::/64")
        acting.wait("2001:db8:7::/64")


def test_lines_of_others_stay_and_a_file_that_is_no_list_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "blocked.txt"
    path.write_text("# ours\n192.0.2.0/24  # by hand\n\n")
    path.chmod(0o640)
    with opened(tmp_path) as acting:
        acting.open(SCANNER)
        acting.wait("# ours", "192.0.2.0/24  # by hand", "", SCANNER)
    assert path.read_text() == "# ours\n192.0.2.0/24  # by hand\n\n"
    assert path.stat().st_mode & 0o777 == 0o640
    path.write_text("root:x:0:0:root:/root:/bin/bash\n")
    with opened(tmp_path) as acting:
        acting.open(SCANNER)
        acting.hears(f"NOT ACTED: {SCANNER}: it is no list of addresses (line 1); name another file; retrying")
        path.write_text("")
        acting.destination.reopen()
        acting.wait(SCANNER)


def test_a_ledger_has_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HOLDING", 0.1)
    other = Ledger(tmp_path / "alerts.acts.sqlite")
    assert other.hold()
    with pytest.raises(UsageError, match="another run acts by this ledger; give each run its own file of alerts"):
        Opened(tmp_path)
    other.close()
    Opened(tmp_path).destination.close()


def test_a_ledger_that_cannot_be_read_keeps_a_run_from_acting(tmp_path: Path) -> None:
    (tmp_path / "alerts.acts.sqlite").write_text("not a database, but some text that is long enough" * 20)
    with pytest.raises(InputError, match=r"not a ledger of acts, or damaged.*look for what it has left in force"):
        Opened(tmp_path)


def test_a_ledger_on_a_full_disk_keeps_a_run_from_acting(tmp_path: Path) -> None:
    with opened(tmp_path) as acting:
        assert isinstance(acting.destination, Acting)
        ledger = acting.destination._ledger
        ledger._database._connection.execute("PRAGMA query_only = on")  # SQLite refuses writes, as on a full disk
        acting.open(SCANNER)
        acting.hears("NOT ACTED: ")
        assert acting.lines == []
        ledger._database._connection.execute("PRAGMA query_only = off")
        acting.wait(SCANNER)


def test_rows_do_not_act(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="acts follow alerts; give it with --alert-to"):
        check_addresses(OutputOptions(outputs=["list:/tmp/x?act=true"]), ENDLESS)
    check_addresses(OutputOptions(outputs=["list:/tmp/x?act=true"], option="--alert-to"), ENDLESS)
    with pytest.raises(UsageError, match="acts follow alerts; give it with --alert-to"):
        open_destination("list:/tmp/x?act=true", ENDLESS)


@pytest.mark.slow
def test_a_killed_run_leaves_nothing_behind(tmp_path: Path) -> None:
    ledger, listed = tmp_path / "alerts.acts.sqlite", tmp_path / "blocked.txt"
    random.seed(7)
    for _ in range(4):
        run = ActingRun(ledger, f"list:{listed}?act=true")
        run.wait("ready")
        run.open(*(f"198.51.100.{number}" for number in range(1, 60)))
        time.sleep(random.uniform(0, 0.3))
        run.kill()
    run = ActingRun(ledger, f"list:{listed}?act=true")
    run.wait("ready")
    run.open("198.51.100.3")
    wait_for(lambda: listed.exists() and listed.read_text() == "198.51.100.3\n", "one is left")
    run.open()
    wait_for(lambda: listed.read_text() == "", "nothing is left")
    wait_for(lambda: held(ledger) == set(), "the ledger is empty")
    run.end()


def test_commands_show_and_withdraw_acts(run: Run, tmp_path: Path) -> None:
    ledger, file = tmp_path / "alerts.acts.sqlite", tmp_path / "alerts.sqlite"
    assert ledger_beside(file) == ledger_beside(ledger) == ledger
    assert run("acts", "list", file).status == 3
    with opened(tmp_path, "act=true&most=2&at-end=keep") as acting:
        acting.open(alert(SCANNER, peers=3000), alert(SIX, peers=2000), OTHER)
        acting.wait(SCANNER, SIX)
        acting.hears(f"ACTED against {SIX}")
        acting.hears(f"ACTED against {SCANNER}")
        listed = run("acts", "list", file).out.splitlines()
        assert {line.split()[3] for line in listed[1:]} == {SCANNER, SIX}
        shown = run("acts", "list", ledger, "--all", "--json").rows
        states = {each["host"]: each["state"] for each in shown}
        assert states == {SCANNER: "in force", SIX: "in force", OTHER: "refused"}
        assert run("acts", "withdraw", ledger).status == 2
        assert run("acts", "withdraw", ledger, SCANNER, "--all").status == 2
        ended = run("acts", "withdraw", ledger, SCANNER)  # by the run
        assert (ended.status, "1 act withdrawn" in ended.err) == (0, True)
        acting.wait(OTHER, SIX)  # There is room for another one.
        acting.hears(f"ACTED against {OTHER}")
    ended = run("acts", "withdraw", file, "--all")  # by the command
    assert (ended.status, "2 acts withdrawn" in ended.err) == (0, True)
    assert acting.lines == []
    assert "nothing is in force" in run("acts", "withdraw", file, "--all").err
    assert "no acts in force" in run("acts", "list", file).err
    told = run("acts", "list", file, "--audit", "--json").rows
    assert [(each["what"], each["why"]) for each in told][-1] == ("withdrawn", "withdrawn by a person")
    assert SCANNER in run("acts", "list", file, "--audit").out
    with opened(tmp_path) as acting:  # Their alerts are still open: what a person has withdrawn stays so.
        acting.open(SCANNER, SIX, OTHER, THIRD)
        acting.wait(THIRD)
        acting.destination.write(Report(rows=[alert(SCANNER, event="grown")]))
        acting.open(SCANNER, SIX, OTHER, THIRD, "192.0.2.99")
        acting.wait(THIRD, "192.0.2.99")


WRONG = {
    "list:blocked.txt": "name a file by its full path",
    "list:/tmp/x?format=xml": "format=xml: use plain, iprep, dataset",
    "list:/tmp/x?score=5": "score belongs to format=iprep",
    "list:/tmp/x?format=iprep&score=200": "score=200: write a number from 1 to 127",
    "list:/tmp/x?most=0": "most=0: write a number of acts",
    "list:/tmp/x?act=yes": "act=yes: use true, false",
    "list:/tmp/x?expires=never": "expires: ",
    "list:/tmp/x?timeout=1h": "unknown option timeout",
    "nft:superhosts": "name a table and the begin of its sets",
    "nft:ip/filter/blocked": "name a table and the begin of its sets",
    "nft:inet/superhosts/blocked; flush ruleset": "name a table and the begin of its sets",
    "bgp:exabgp.in?next-hop=192.0.2.1": "name ExaBGP's pipe by its full path",
    "bgp:/run/exabgp.in": "kind=blackhole needs next-hop=ADDRESS",
    "bgp:/run/exabgp.in?next-hop=192.0.2.1;x": "next-hop=192.0.2.1;x: not an address of IPv4",
    "bgp:/run/exabgp.in?next-hop=2001:db8::1": "not an address of IPv4",
    "bgp:/run/exabgp.in?next-hop=192.0.2.1&community=666": "community=666: write it like 65535:666",
    "exec:/bin/true?act=true": "act needs contract=1 or contract=fastnetmon",
    "exec:/bin/true?contract=2": "contract=2: use 1, fastnetmon",
    "exec:/bin/true?contract=1&action=x": "action is for a program without contract",
}


def test_addresses_that_make_no_sense(tmp_path: Path) -> None:
    for address, message in WRONG.items():
        with pytest.raises(UsageError, match=message):
            open_destination(address, ENDLESS, options(tmp_path / "a.acts.sqlite"))
    assert not Ledger._shared
