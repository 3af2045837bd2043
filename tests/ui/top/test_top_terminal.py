"""`superhosts top` on a real pseudo-terminal: rows, keys, colours, how it ends, and the terminal afterwards."""

from __future__ import annotations

import json
import os
import re
import signal
import termios
from pathlib import Path

import pytest

import packets as p
from cli.test_hosts import NOON, save
from dashboards import serving
from netns import namespace
from superhosts.ui.view import AGAIN
from terminals import COMMAND, OnTerminal
from traffic import MINUTES, talk, three_windows, write
from ui.top.scene import make_view
from waiting import DEADLINE, wait_for

LENGTH = 5 * MINUTES
COLOURS = re.compile(rb"\x1b\[(?:[0-9;]*;)?(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])[;m]")


class Top(OnTerminal):
    def __init__(self, *arguments: object, inside: tuple[str, ...] = (), **environment: str) -> None:
        super().__init__(*inside, *COMMAND, "top", *arguments, **{"TERM": "xterm-256color", **environment})
        self.before = termios.tcgetattr(self.other)

    @property
    def text(self) -> str:
        """Everything that was shown so far, without control sequences."""
        shown = re.sub(r"\x1b\[[0-9;?<>=]*[a-zA-Z]", "", super().text)
        return " ".join(shown.split())  # messages may be wrapped

    def press(self, keys: str) -> None:
        self.text  # noqa: B018  what is shown from here on comes after the keys
        self.sent = b""
        os.write(self.main, keys.encode())

    @property
    def is_restored(self) -> bool:
        """Return True if the terminal is as it was: its modes, its main screen, its cursor."""
        last = {code: self.sent.rfind(f"\x1b[?{code}".encode()) for code in ("1049h", "1049l", "25h", "25l")}
        same = termios.tcgetattr(self.other) == self.before
        return same and last["1049l"] > last["1049h"] and last["25h"] > last["25l"]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    for number in range(3):
        save(tmp_path / "archive" / f"{number}.cube", "ams", NOON + number * LENGTH)
    return tmp_path / "archive"


@pytest.mark.slow
def test_a_folder_of_sketches(archive: Path) -> None:
    with Top(archive, "--threshold", "100", "--key-file", "public") as top:
        top.until("10.0.0.1", "12:10–12:15", "██")
        assert COLOURS.search(top.sent)
        save(archive / "3.cube", "ams", NOON + 3 * LENGTH)  # The folder is followed.
        assert AGAIN < DEADLINE
        top.until("12:15–12:20")
        top.press("[")
        top.until("1 window back", "12:10–12:15")
        top.press("\r")
        top.until("exact", "4 windows, super host in")
        top.press("\x1b")
        top.until("host", "sort")
        top.press("q")
        assert top.ends() == 0
        assert top.is_restored


@pytest.mark.slow
def test_a_state_folder_of_a_hub_without_colours_and_a_signal(archive: Path) -> None:
    sites = {"ams": {"seen": NOON / 1e9, "version": "1.0\x1b[2J"}, "fra": {"seen": None, "mismatch": "too old"}}
    (archive / "status.json").write_text(json.dumps({"sites": sites}))
    with Top(archive, "--threshold", "100", "--key-file", "public", NO_COLOR="1") as top:
        top.until("10.0.0.1", "██", "● newest, ", " ago")
        assert "● live" not in top.text
        assert not COLOURS.search(top.sent)
        top.press("h")
        top.until("Sites: 2", "fra", "too old", r"1.0\x1b[2J")
        assert not COLOURS.search(top.sent)
        top.process.send_signal(signal.SIGTERM)
        assert top.ends() == 128 + signal.SIGTERM
        assert top.is_restored


@pytest.mark.slow
def test_a_file_that_grows(tmp_path: Path) -> None:
    frames = three_windows()
    half = len(frames) // 2
    path, labels = write(tmp_path / "a.pcap", frames[:half]), tmp_path / "labels.csv"
    labels.write_text("10.0.0.7/32,[b]camera[/b]\n")
    options = ("--inner", "10.0.0.0/8", "--window", "5m", "--threshold", "300", "--key-file", "public")
    with Top(path, *options, "--refresh", "1s", "--labels", labels) as top:
        top.until("10.0.0.7", "[b]camera[/b]", "1,500", "22:15–22:20")
        top.until("22:20–22:25", "(open)")
        with path.open("ab") as file:
            file.write(b"".join(p.record(*frame) for frame in frames[half:]))
        top.until("22:25–22:30")
        top.press("\x03")
        assert top.ends() == 0
        stays = top.sent.rpartition(b"\x1b[?1049l")[2]  # on the main screen
        assert b"10.0.0.7" in stays
        assert b"host" in stays
        assert top.is_restored


@pytest.mark.slow
def test_an_interface(tmp_path: Path) -> None:
    with namespace(tmp_path) as net:
        options = ("--threshold", "100", "--refresh", "1s", "--window", "1h", "--key-file", "public")
        with Top("live:near0", *options, inside=tuple(net.inside)) as top:
            maps = Path(f"/proc/{top.process.pid}/maps")
            wait_for(lambda: "watch" in top.text and "socket:" in maps.read_text(), lambda: top.text)
            net.send(talk("10.0.0.7", 1500))
            top.until("10.0.0.7", "1,500", "(open)", "● live")
            top.press("q")
            assert top.ends() == 0
            assert top.is_restored


@pytest.mark.slow
def test_an_input_that_cannot_be_read_is_told_and_is_the_status(tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(b"no capture at all, but long enough to be looked at\n" * 5)
    with Top(tmp_path / "a.pcap", "--key-file", "public") as top:
        top.until("○ not counting", "not a capture")
        top.press("q")
        assert top.ends() == 3
        assert top.is_restored
        assert "superhosts: " in top.text


@pytest.mark.slow
def test_a_web_address(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    with serving(make_view(3), token="secret") as web:
        with Top(web.url) as top:
            assert top.ends() == 2
            assert "--token-file" in top.text
        with Top(web.url, "--token-file", tmp_path / "token") as top:
            top.until("hub fra", "10.20.4.17", "● live", "missing: lon")
            top.press("q")
            assert top.ends() == 0
            assert top.is_restored
