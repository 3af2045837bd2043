"""`superhosts top`: which options belong to which input, and what is said where it cannot work."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from cli.test_hosts import NOON, save
from commands import Run
from superhosts.cli import top
from superhosts.cli.top import LiveFeed, Messages, open_feed
from superhosts.cli.usage.traffic import Top
from superhosts.errors import InputError, MissingExtraError, UsageError
from superhosts.output.alerts.store import AlertStore
from superhosts.ui.top import load_app
from superhosts.ui.top.feed import RemoteFeed
from traffic import MINUTES, talk, write
from traffic import NOON as FIRST
from waiting import wait_for

EARLIER = FIRST - 10 * MINUTES
PUBLIC = Path("public")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    for number in range(2):
        save(tmp_path / "archive" / f"{number}.cube", "ams", NOON + number * 5 * MINUTES)
    return tmp_path / "archive"


def test_without_a_terminal_it_points_to_other_commands(run: Run, archive: Path) -> None:
    ended = run("top", archive)
    assert ended.status == 2
    assert "superhosts: top needs a terminal" in ended.err
    assert "superhosts watch" in ended.err
    assert "superhosts hosts" in ended.err


def test_without_textual_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textual", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'superhosts\[top\]'"):
        load_app()


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"window": "1m"}, "http://127.0.0.1:9", "--window: not with a web address"),
    ({"threshold": 5.0}, "http://127.0.0.1:9", "--threshold: not with a web address"),
    ({"alerts": Path("a")}, "http://127.0.0.1:9", "--alerts: not with a web address"),
    ({"names": True}, "http://127.0.0.1:9", "--names: not with a web address"),
    ({"inner": ["10.0.0.0/8"]}, "ARCHIVE", "--inner: not with a folder"),
    ({"token_file": Path("t")}, "ARCHIVE", "--token-file: not with a folder"),
    ({"token_file": Path("t")}, "synth:flows=1k", "--token-file: only with an address"),
    ({"threshold": -5.0}, "ARCHIVE", "--threshold"),
    ({}, "-", "-: top reads keys from standard input"),
    ({}, "ARCHIVE ARCHIVE", "one address or folder at a time"),
    ({"alerts": Path("none")}, "ARCHIVE", "no alerts are kept here"),
]


def test_options_that_belong_to_other_inputs_are_refused(archive: Path) -> None:
    for given, names, words in WRONG:
        options = Top(inputs=names.replace("ARCHIVE", str(archive)).split(), **given)
        with pytest.raises((UsageError, InputError), match=words):
            open_feed(options)


def test_what_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    assert isinstance(open_feed(Top(inputs=["http://127.0.0.1:9"])), RemoteFeed)
    feed = open_feed(Top(inputs=[str(tmp_path)], key_file=PUBLIC))  # an empty folder, for sketches
    assert not isinstance(feed, LiveFeed)
    assert feed.summary()["newest"] is None
    feed.close()
    path = write(tmp_path / "a.pcap", talk("10.0.0.7", 15))
    open_feed(Top(inputs=[str(path)], key_file=PUBLIC)).close()  # before it has begun


def test_a_folder_is_filled_in_the_background(archive, tmp_path, monkeypatch) -> None:
    closed, close = [], AlertStore.close
    monkeypatch.setattr(AlertStore, "close", lambda store: (closed.append(store.path), close(store)))
    AlertStore(archive / "alerts.db")._database.close()
    (tmp_path / "labels.csv").write_text("10.0.0.0/24,office\n")
    labels = tmp_path / "labels.csv"
    feed = open_feed(Top(inputs=[str(archive)], key_file=PUBLIC, threshold=100.0, labels=labels))
    assert feed.summary()["can"]["alerts"]
    wait_for(lambda: len(feed.windows()) == 2, feed.summary)
    assert {row["host"]: row["label"] for row in feed.window()["rows"]} == {"10.0.0.1": "office", "10.1.0.3": None}
    assert closed == []
    feed.close()
    assert closed == [archive / "alerts.db"]


def test_only_the_file_that_was_named_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", talk("10.0.0.7", 1500))
    write(tmp_path / "b.pcap", talk("10.0.0.8", 1500, start=EARLIER))  # it would be read first
    feed = open_feed(Top(inputs=[str(path)], key_file=PUBLIC, refresh="0"))
    feed.follow(lambda: None)
    wait_for(lambda: feed.summary()["newest"] and feed.window()["rows"], feed.summary)
    assert "10.0.0.8" not in str(feed.window()["rows"])
    assert feed.summary()["title"] == f"watch {path}"
    feed.close()


def test_a_folder_of_captures_is_counted(tmp_path: Path) -> None:
    write(tmp_path / "a.pcap", talk("10.0.0.7", 1500))
    feed = open_feed(Top(inputs=[str(tmp_path)], key_file=PUBLIC, refresh="0"))
    assert isinstance(feed, LiveFeed)
    feed.follow(lambda: None)
    wait_for(lambda: feed.summary()["newest"], lambda: feed.errors.found)
    wait_for(lambda: feed.window()["rows"], lambda: feed.errors.found)
    row = feed.window()["rows"][0]
    assert (row["host"], row["peers"]) == ("10.0.0.7", 1500)
    assert "open" in feed.window()["notes"]
    feed.close()
    assert feed.lost == "the input has ended"
    assert "open" not in feed.window()["notes"]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (InputError("cannot be read", file="a.pcap"), "a.pcap: cannot be read"),
        (MemoryError(), "out of memory; use less --memory"),
        (ZeroDivisionError("by zero"), "counting has failed (ZeroDivisionError('by zero')): please report this"),
    ],
)
def test_a_feed_whose_counting_fails_is_not_live(tmp_path, monkeypatch, capsys, error, words) -> None:
    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(top, "run_scan", fail)
    feed = open_feed(Top(inputs=[str(write(tmp_path / "a.pcap", talk("10.0.0.7", 15)))], key_file=PUBLIC))
    assert isinstance(feed, LiveFeed)
    ended = threading.Event()
    feed.on_end = ended.set
    feed.follow(lambda: None)
    wait_for(ended.is_set, "the end")
    assert feed.lost == words
    assert [str(each) for each in feed.errors.found] == [words]
    told = capsys.readouterr().err
    assert words in told
    assert ("Traceback" in told) == isinstance(error, ZeroDivisionError)
    feed.close()


def test_messages_are_shown_for_a_moment_and_kept_for_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("superhosts.cli.top.time.monotonic", lambda: now[0])
    messages = Messages()
    assert messages.latest() == ""
    messages.write("warning: something")
    messages.tell("compiling …")
    assert messages.latest() == "compiling …"
    now[0] += 3600.0
    assert messages.latest() == ""
    assert list(messages.lines) == ["warning: something"]
