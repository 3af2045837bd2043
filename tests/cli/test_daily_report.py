"""`superhosts report`: what changed within a time, as text, as one page, and as a mail."""

from __future__ import annotations

import email
import email.policy
import re
from collections.abc import Mapping
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import superhosts as sh
from browsing import chromium
from commands import Run
from cubes import dense_cube
from faults import full_disk
from places import ROOT
from receivers import Receiver
from superhosts.core.units import SECOND
from superhosts.errors import SuperhostsError
from superhosts.ui.folder import SketchFolder
from superhosts.ui.period import MOST_CELL, SHOWN, look_at, page, text
from traffic import MINUTES

END = 1_794_657_600 * SECOND  # 2026-11-14T12:00:00Z
UNTIL = ("--until", "2026-11-14T12:00", "--last", "1h", "-t", 100)
GEOMETRY = sh.Geometry.for_memory("1MiB")
FIVE = 5 * MINUTES
HOUR = sh.Window(END - 60 * MINUTES, END)


def save(folder: Path, number: int, hosts: Mapping[str, int], *, site: str = "ams", length: int = FIVE) -> Path:
    """Save the sketch of a window; number 0 is the first of the hour before `END`, -1 the last before that hour."""
    start = END - 60 * MINUTES + number * FIVE
    sketch = sh.Sketch(window=sh.Window(start, start + length), site=site)
    cube = sh.Cube(geometry=GEOMETRY, device="cpu")
    for host, peers in hosts.items():
        octets = [int(octet) for octet in host.split(".")]
        integer = np.uint32(int.from_bytes(octets))
        cube.update(np.full(peers, integer), np.arange(peers, dtype=np.uint32) + integer % np.uint32(99_991))
    sketch.parts[sh.Part(4)] = cube
    folder.mkdir(exist_ok=True)
    path = folder / f"{number + 100}-{length // MINUTES}-{site}.cube"
    sketch.save(path)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hours: always there, risen, new, gone, and there now and then; a host that is never large enough."""
    made = tmp_path_factory.mktemp("report") / "sketches"
    for number in range(-12, 12):
        if number == 5:
            continue
        hosts = {"10.0.0.1": 400, "10.0.0.2": 150 if number < 0 else 310, "10.0.0.9": 50}
        hosts |= {"10.0.0.3": 200 + 10 * number} if number > 6 else {}
        hosts |= {"10.0.0.4": 500} if number in (-9, -8) else {}
        hosts |= {"10.0.0.5": 120} if number in (-7, 2) else {}
        save(made, number, hosts)
    return made


def names(report: Mapping[str, Any]) -> dict[str, list[str]]:
    groups = ("new", "risen", "persistent", "other", "gone")
    return {name: [host["host"] for host in report["groups"][name]] for name in groups}


def test_hosts_are_new_risen_persistent_or_gone(run: Run, folder: Path) -> None:
    (found,) = run("report", folder, *UNTIL, "--json").rows
    assert names(found) == {
        "new": ["10.0.0.3"],
        "risen": ["10.0.0.2"],
        "persistent": ["10.0.0.1"],
        "other": ["10.0.0.5"],
        "gone": ["10.0.0.4"],
    }
    assert (found["start"], found["end"], found["length"]) == ("2026-11-14T11:00:00Z", "2026-11-14T12:00:00Z", 300)
    assert (found["windows"], found["windows_before"], found["sites"]) == (11, 12, ["ams"])
    new, risen, gone = (found["groups"][name][0] for name in ("new", "risen", "gone"))
    assert (new["peers"], new["peak"], new["windows"], new["windows_before"], new["change"]) == (290, 310, 5, 0, None)
    assert (new["first"], new["last"]) == ("2026-11-14T11:35:00Z", "2026-11-14T12:00:00Z")
    assert (risen["windows"], risen["windows_before"]) == (11, 12)
    assert (risen["peers"], risen["peers_before"], round(risen["change"], 3)) == (310, 150, 1.067)
    assert (gone["peers"], gone["peers_before"], gone["last"]) == (None, 500, "2026-11-14T10:25:00Z")


def test_without_a_file_it_is_text(run: Run, folder: Path) -> None:
    ended = run("report", folder, *UNTIL)
    assert (ended.status, ended.err) == (0, "")
    lines = [" ".join(line.split()) for line in ended.out.splitlines()]
    assert lines[0] == "4 super hosts: 1 new, 1 risen, 1 persistent, 1 other; 1 gone"
    assert lines[1] == "2026-11-14 11:00 to 2026-11-14 12:00 UTC, hosts with at least 100 peers"
    assert lines[2] == "windows of 5m: 11 of 12, and 12 of the time before"
    assert "10.0.0.2 310 310 150 +107 % 11 of 11 2026-11-14 11:00 2026-11-14 12:00" in lines
    assert "10.0.0.4 500 500 2 of 12 2026-11-14 10:15 2026-11-14 10:25" in lines


def test_the_span_ends_now_by_default(run: Run, folder: Path) -> None:
    ended = run("report", folder, "--last", "90d", "-t", 100)
    assert ended.status in (0, 3)  # by the clock of this machine, the sketches may be older
    assert run("report", folder, "--until", "2020-01-01").status == 3


class Page(HTMLParser):
    """What a page consists of; each element is closed in its order."""

    VOID = ("meta", "br")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def paths(self, kind: str) -> list[str]:
        return [str(found["d"]) for tag, found in self.tags if tag == "path" and kind in str(found["class"])]


EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>&\"' \u202egpj"


def test_the_page_is_one_file_that_loads_and_runs_nothing(run: Run, folder: Path, tmp_path: Path) -> None:
    labels, out = tmp_path / "labels.csv", tmp_path / "report.html"
    quoted = EVIL.replace('"', '""')
    labels.write_text(f'10.0.0.3,"{quoted}"\n10.0.0.1,mail gateway\n', encoding="utf-8")
    ended = run("report", folder, *UNTIL, "-o", out, "--labels", labels)
    assert (ended.status, ended.out, ended.err) == (0, "", "")
    html = out.read_text(encoding="utf-8")
    made = Page(html)
    assert not re.search(r"https?:|//|url\(|@import|javascript:", html.replace("<!doctype", ""))
    assert {tag for tag, _ in made.tags} & {"script", "img", "link", "iframe", "object", "base", "form"} == set()
    for tag, found in made.tags:
        assert not any(name.startswith("on") or name in ("src", "style") for name in found), tag
        assert str(found.get("href", "#")).startswith("#")
    policy = [found["content"] for tag, found in made.tags if tag == "meta" and "http-equiv" in found]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]
    assert "mail gateway" in made.texts
    shown = next(each for each in made.texts if each.startswith("<script>"))
    assert (shown.startswith(EVIL[:40]), "\u202e" in html) == (True, False)


def test_the_figures_draw_each_window_once_with_gaps(folder: Path) -> None:
    period = look_at(SketchFolder(folder), HOUR, 100.0)
    made = Page(page(period))
    (bars,) = made.paths("bars")
    assert bars.count("M") == len(period.per_window) == 11
    assert [count for _, count in period.per_window] == [2, 2, 3, 2, 2, 2, 3, 3, 3, 3, 3]
    lines = made.paths("line")
    assert [label for label, _ in period.largest] == ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.5", "10.0.0.9"]
    # The window that is missing breaks a line; one window alone is a dot.
    assert [line.count("M") for line in lines] == [2, 2, 1, 1, 2]
    assert lines[3].endswith("h0")
    assert [line.count("L") for line in lines] == [9, 9, 4, 0, 9]
    for line in (bars, *lines):
        numbers = [float(each) for each in re.findall(r"[0-9.]+", line)]
        assert all(0 <= number <= 760 for number in numbers)
    for line in lines[:2]:
        xs = [float(each) for each in re.findall(r"[ML]([0-9.]+)", line)]
        assert all(first < second for first, second in pairwise(xs))


@pytest.mark.slow
def test_a_browser_shows_the_page_in_both_colours(folder: Path, tmp_path: Path) -> None:
    period = look_at(SketchFolder(folder), HOUR, 100.0)
    (tmp_path / "report.html").write_text(page(period), encoding="utf-8")
    with chromium(tmp_path / "profile") as browser:
        shown, said = browser.new_page(), list[str]()
        shown.on("console", lambda message: said.append(message.text))
        shown.on("request", lambda request: said.append(request.url))
        colours = []
        for colour in ("light", "dark"):
            shown.emulate_media(color_scheme=colour)
            shown.goto((tmp_path / "report.html").as_uri())
            colours.append(shown.evaluate("getComputedStyle(document.body).backgroundColor"))
            assert shown.evaluate("document.querySelector('svg').getBoundingClientRect().height") > 100
        assert colours == ["rgb(255, 255, 255)", "rgb(21, 24, 28)"]
        shown.emulate_media(media="print", color_scheme="dark")
        assert shown.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        shown.set_viewport_size({"width": 390, "height": 844})
        assert shown.evaluate("document.documentElement.scrollWidth") <= 390
        assert set(said) == {(tmp_path / "report.html").as_uri()}


def test_a_page_that_cannot_be_written_leaves_the_old_one(run: Run, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    out.write_text("yesterday")
    with full_disk(500):
        ended = run("report", folder, *UNTIL, "-o", out)
    assert (ended.status, out.read_text(), sorted(tmp_path.iterdir())) == (4, "yesterday", [out])
    assert f"{out}: cannot be written" in ended.err


def test_a_mail_has_the_text_and_the_page(run: Run, folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("aiosmtpd")
    with Receiver("smtp") as receiver:
        address = f"smtp://127.0.0.1:{receiver.port}/?to=noc@example.net&from=me@example.net"
        assert run("report", folder, *UNTIL, "-o", address, "-o", tmp_path / "a.html").status == 0
        (sent,) = receiver.wait(1)
    mail = email.message_from_string(sent["mail"], policy=email.policy.default)
    assert mail["Subject"] == "4 super hosts: 1 new, 1 risen, 1 persistent, 1 other; 1 gone at ams"
    assert mail["To"] == "noc@example.net"
    body = mail.get_body(("plain",))
    assert body is not None
    assert body.get_content().replace("\r\n", "\n") == run("report", folder, *UNTIL).out
    (attached,) = mail.iter_attachments()
    assert (attached.get_content_type(), attached.get_filename()) == ("text/html", "superhosts.html")
    assert attached.get_content().replace("\r\n", "\n") == (tmp_path / "a.html").read_text(encoding="utf-8")


def test_a_mail_that_is_refused_is_an_error_and_the_file_is_written(run: Run, folder: Path, tmp_path: Path) -> None:
    with Receiver("smtp") as receiver:
        port = receiver.port
    address = f"smtp://127.0.0.1:{port}/?to=noc@example.net"  # nobody listens there any more
    ended = run("report", folder, *UNTIL, "-o", address, "-o", tmp_path / "a.html")
    assert (ended.status, (tmp_path / "a.html").exists()) == (4, True)
    assert f"smtp://127.0.0.1:{port}: the report is NOT SENT: Connection refused" in ended.err


def test_places_that_cannot_be_are_refused_before_anything_is_read(run: Run, folder: Path, tmp_path: Path) -> None:
    places = {
        "report.pdf": "report.pdf: write a name that ends in .html, or smtp://HOST/?to=…",
        "webhook+https://host/secret": "webhook+https://host/…: write a name that ends in .html",
        "smtp://host": "smtp://host: name the recipients",
        "smtp://me:secret@host/?to=a@b.example": "smtp://me@host: every user of this machine can see a password",
        "@nowhere": "@nowhere: cannot be read",
    }
    for place, why in places.items():
        ended = run("report", folder, "-o", tmp_path / "a.html", "-o", place)
        assert (ended.status, f"--output {why}" in ended.err, "secret" in ended.err) == (2, True, False), ended.err
    assert list(tmp_path.iterdir()) == []
    assert "no folder of sketches is here" in run("report", tmp_path / "nowhere").err
    ended = run("report", tmp_path)
    assert (ended.status, "has no window in" in ended.err) == (3, True)
    assert run("report", folder, "--last", "soon").status == 2
    assert "--last 4000d: at most ten years" in run("report", folder, "--last", "4000d").err


def test_without_a_time_before_nothing_is_new(run: Run, tmp_path: Path) -> None:
    for number in range(4):
        save(tmp_path, number, {"10.0.0.1": 200, **({"10.0.0.2": 300} if number == 1 else {})})
    (found,) = run("report", tmp_path, *UNTIL, "--json").rows
    assert names(found) == {
        **{name: [] for name in ("new", "risen", "gone")},
        "persistent": ["10.0.0.1"],
        "other": ["10.0.0.2"],
    }
    assert found["notes"] == ["no window of the time before is here: nothing is said to be new, risen or gone"]


def test_a_damaged_sketch_is_left_out_and_told(run: Run, tmp_path: Path) -> None:
    for number in range(3):
        path = save(tmp_path, number, {"10.0.0.1": 200})
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    (tmp_path / "junk\u202e<b>.cube").write_text("junk")
    ended = run("report", tmp_path, *UNTIL, "-o", tmp_path / "a.html")
    assert (ended.status, str(path) in ended.err) == (3, True)
    html = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "1 window cannot be read: left out" in html
    assert ("1 file is not a sketch: " in html, "<b>.cube" in html, "\u202e" in html) == (True, False, False)
    assert "windows of 5m: 2 of 12, and 0 of" in html


def test_sites_of_a_window_are_one_and_other_lengths_are_left_out(run: Run, tmp_path: Path) -> None:
    for number in range(3):
        save(tmp_path, number, {"10.0.0.1": 200}, site="ams")
        save(tmp_path, number, {"10.0.0.1": 200, "10.0.0.2": 150}, site="fra")
    save(tmp_path, 0, {"10.0.0.7": 900}, length=60 * MINUTES)
    (found,) = run("report", tmp_path, *UNTIL, "--json").rows
    assert [(host["host"], host["windows"]) for host in found["groups"]["persistent"]] == [
        ("10.0.0.1", 3),
        ("10.0.0.2", 3),
    ]
    assert (found["windows"], found["sites"]) == (3, ["ams", "fra"])
    assert found["notes"][0] == "1 window of another length than 5m: left out"


def test_what_takes_too_long_is_left_out_all_over_the_time(folder: Path) -> None:
    period = look_at(SketchFolder(folder), HOUR, 100.0, longest=-1.0)
    assert (period.windows, period.windows_before) == (0, 1)
    assert period.notes[0] == "22 of 23 windows, here and there, left out: it took too long"
    assert "windows of 5m: 0 of 12, and 1 of" in page(period)
    asked: list[int] = []

    def over(numbers: Any) -> Any:
        for number in numbers:
            asked.append(number)
            yield number

    look_at(SketchFolder(folder), HOUR, 100.0, over=over)
    assert sorted(asked) == list(range(23))
    for most in (4, 8, 16):  # of those asked first, none is far from the next
        first = sorted(asked[:most])
        assert max(second - first for first, second in pairwise([*first, 23])) <= 2 * 23 // most + 2


def test_long_tables_are_cut_and_lower_bounds_are_marked(tmp_path: Path) -> None:
    save(tmp_path, 0, {f"10.0.{number}.1": 200 + number for number in range(SHOWN + 5)})
    period = look_at(SketchFolder(tmp_path), HOUR, 100.0)
    assert "  and 5 more\n" in text(period)
    assert "<p>and 5 more</p>" in page(period)
    assert f"10.0.{SHOWN + 4}.1" in text(period)
    assert "10.0.1.1" not in text(period)
    assert len(period.groups["persistent"]) == SHOWN + 5
    assert max(map(len, text(period).splitlines())) < 10 * MOST_CELL


def test_a_host_of_which_only_a_lower_bound_is_known_is_marked(tmp_path: Path) -> None:
    cube = dense_cube(geometry=sh.Geometry(32, 3, 3, 10, 17, 2, 1, giants=0)._replace(column_bits=6))
    cube.update(np.full(3000, 10 << 24 | 1, np.uint32), np.arange(3000, dtype=np.uint32))
    sketch = sh.Sketch(window=sh.Window(END - FIVE, END), site="ams")
    sketch.parts[sh.Part(4)] = cube
    sketch.save(tmp_path / "a.cube")
    period = look_at(SketchFolder(tmp_path), HOUR, 100.0)
    (host,) = (each for each in period.groups["persistent"] if each["host"] == "10.0.0.1")
    assert (host["peak"], host["saturated"]) == (182, True)
    assert "≥ 182" in text(period)
    assert "≥ 182" in page(period)


def test_patterns_of_evidence_are_there(run: Run, tmp_path: Path) -> None:
    capture = ROOT / "tests" / "first_hour" / "captures" / "services.pcap.gz"
    assert run("scan", capture, "--evidence", "--save", tmp_path / "s", "-t", 200, "-q", "--window", "5m").status == 0
    ended = run("report", tmp_path / "s", "--until", "2026-03-02T09:35", "--last", "5m", "-t", 200)
    (line,) = (line for line in ended.out.splitlines() if "203.0.113.66" in line)
    assert line.endswith("prefix sweep")


def test_nothing_above_the_threshold_is_an_answer(run: Run, folder: Path) -> None:
    ended = run("report", folder, *UNTIL[:4], "-t", "1M")
    assert (ended.status, ended.out.splitlines()[0]) == (0, "0 super hosts")
    assert Page(page(look_at(SketchFolder(folder), HOUR, 1e6))).paths("bars")


def test_errors_are_of_this_program(tmp_path: Path) -> None:
    with pytest.raises(SuperhostsError, match="has no window in 2026-11-14T11:00:00Z to 2026-11-14T12:00:00Z"):
        look_at(SketchFolder(tmp_path), HOUR, 100.0)
