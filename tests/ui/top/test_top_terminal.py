"""`superhosts top` on a real pseudo-terminal: rows, keys, colours, how it ends, and the terminal afterwards."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import packets as p
from cli.test_hosts import NOON, save
from dashboards import serving
from netns import namespace
from superhosts.ui.view import AGAIN
from traffic import MINUTES, talk, three_windows, write
from ui.top.scene import make_view
from waiting import DEADLINE, wait_for

LENGTH = 5 * MINUTES
COLOURS = re.compile(rb"\x1b\[(?:[0-9;]*;)?(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])[;m]")


class OnTerminal:
    """The command on a terminal of 80 columns and 24 lines."""

    def __init__(self, *arguments: object, inside: tuple[str, ...] = (), **environment: str) -> None:
        self.main, self._other = pty.openpty()
        fcntl.ioctl(self._other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(self._other)
        command = [*inside, sys.executable, "-m", "superhosts", "top", *map(str, arguments)]
        streams: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), self._other)
        given = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        self.process = subprocess.Popen(
            command, env={**given, "TERM": "xterm-256color", **environment}, start_new_session=True, **streams
        )
        os.set_blocking(self.main, False)
        self.sent = b""

    @property
    def text(self) -> str:
        """Everything that was shown so far, without control sequences."""
        try:
            while more := os.read(self.main, 65_536):
                self.sent += more
        except OSError:  # nothing to read
            pass
        shown = re.sub(rb"\x1b\[[0-9;?<>=]*[a-zA-Z]", b"", self.sent).decode(errors="replace")
        return " ".join(shown.split())  # messages may be wrapped

    def until(self, *words: str) -> None:
        def met() -> bool:
            shown = self.text
            assert self.process.poll() is None or all(word in shown for word in words), shown[-2000:]
            return all(word in shown for word in words)

        wait_for(met, lambda: self.text[-2000:])

    def press(self, keys: str) -> None:
        self.text  # noqa: B018  what is shown from here on comes after the keys
        self.sent = b""
        os.write(self.main, keys.encode())

    def ends(self) -> int:
        wait_for(lambda: (self.text, self.process.poll() is not None)[1], lambda: self.text[-2000:])
        self.text  # noqa: B018
        return self.process.wait(DEADLINE)

    @property
    def is_restored(self) -> bool:
        """Return True if the terminal is as it was: its modes, its main screen, its cursor."""
        last = {code: self.sent.rfind(f"\x1b[?{code}".encode()) for code in ("1049h", "1049l", "25h", "25l")}
        same = termios.tcgetattr(self._other) == self.before
        return same and last["1049l"] > last["1049h"] and last["25h"] > last["25l"]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.main)
        os.close(self._other)


@contextmanager
def on_terminal(*arguments: object, inside: tuple[str, ...] = (), **environment: str) -> Iterator[OnTerminal]:
    found = OnTerminal(*arguments, inside=inside, **environment)
    try:
        yield found
    finally:
        found.close()


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    for number in range(3):
        save(tmp_path / "archive" / f"{number}.cube", "ams", NOON + number * LENGTH)
    return tmp_path / "archive"


@pytest.mark.slow
def test_a_folder_of_sketches(archive: Path) -> None:
    with on_terminal(archive, "--threshold", "100", "--key-file", "public") as top:
        top.until("10.0.0.1", "12:10–12:15", "██")
        assert COLOURS.search(top.sent)
        save(archive / "3.cube", "ams", NOON + 3 * LENGTH)  # The folder is followed.
        assert AGAIN < DEADLINE
        top.until("12:15–12:20")
        top.press("[")
        top.until("1 window back", "12:10–12:15")
        top.press("\r")
        top.until("95 % interval", "4 windows, super host in")
        top.press("\x1b")
        top.until("host", "sort")
        top.press("q")
        assert top.ends() == 0
        assert top.is_restored


@pytest.mark.slow
def test_a_state_folder_of_a_hub_without_colours_and_a_signal(archive: Path) -> None:
    sites = {"ams": {"seen": NOON / 1e9, "version": "1.0\x1b[2J"}, "fra": {"seen": None, "mismatch": "too old"}}
    (archive / "status.json").write_text(json.dumps({"sites": sites}))
    with on_terminal(archive, "--threshold", "100", "--key-file", "public", NO_COLOR="1") as top:
        top.until("10.0.0.1", "░", "● newest, ", " ago")
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
    path = write(tmp_path / "a.pcap", frames[:half])
    options = ("--inner", "10.0.0.0/8", "--window", "5m", "--threshold", "300", "--key-file", "public")
    with on_terminal(path, *options, "--refresh", "1s") as top:
        top.until("10.0.0.7", "1,500", "22:15–22:20")
        top.until("22:20–22:25", "(open)")
        with path.open("ab") as file:
            file.write(b"".join(p.record(*frame) for frame in frames[half:]))
        top.until("22:25–22:30")
        top.press("\x03")
        assert top.ends() == 0
        assert top.is_restored


@pytest.mark.slow
def test_an_interface(tmp_path: Path) -> None:
    with namespace(tmp_path) as net:
        options = ("--threshold", "100", "--refresh", "1s", "--window", "1h", "--key-file", "public")
        with on_terminal("live:near0", *options, inside=tuple(net.inside)) as top:
            maps = Path(f"/proc/{top.process.pid}/maps")
            wait_for(lambda: "watch" in top.text and "socket:" in maps.read_text(), lambda: top.text)
            net.send(talk("10.0.0.7", 1500))
            top.until("10.0.0.7", "1,500", "(open)", "● live")
            top.press("q")
            assert top.ends() == 0
            assert top.is_restored


@pytest.mark.slow
def test_labels_of_live_hosts(tmp_path: Path) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text("10.0.0.7/32,[b]camera[/b]\n")
    path = write(tmp_path / "a.pcap", talk("10.0.0.7", 1500))
    with on_terminal(path, "--labels", labels, "--threshold", "100", "--key-file", "public") as top:
        top.until("10.0.0.7", "[b]camera[/b]")
        top.press("q")
        assert top.ends() == 0


@pytest.mark.slow
def test_an_input_that_cannot_be_read_is_told_and_is_the_status(tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(b"no capture at all, but long enough to be looked at\n" * 5)
    with on_terminal(tmp_path / "a.pcap", "--key-file", "public") as top:
        top.until("○ not counting", "not a capture")
        top.press("q")
        assert top.ends() == 3
        assert top.is_restored
        assert "superhosts: " in top.text


@pytest.mark.slow
def test_an_interface_that_does_not_exist_is_an_error() -> None:
    with on_terminal("live:nosuch0") as top:
        assert top.ends() != 0
        assert "nosuch0" in top.text


@pytest.mark.slow
def test_a_web_address(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    with serving(make_view(3), token="secret") as web:
        with on_terminal(web.url) as top:
            assert top.ends() == 2
            assert "--token-file" in top.text
        with on_terminal(web.url, "--token-file", tmp_path / "token") as top:
            top.until("hub fra", "10.20.4.17", "● live", "missing: lon")
            top.press("q")
            assert top.ends() == 0
            assert top.is_restored
