"""All destinations of a run: one that fails does not keep anything from the others."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress

import pytest

from superhosts.errors import OutputError
from superhosts.output.destination import Destination, Destinations
from superhosts.output.report import Report
from superhosts.output.stdout import BackgroundStdout, StandardOutput

REPORT = Report(rows=[{"host": "10.0.0.7"}], title="title")


class Fake(Destination):
    """Notes what is asked of it, and fails where a test says so."""

    def __init__(self, *failing: str) -> None:
        super().__init__("fake")
        self.failing = failing
        self.calls: list[str] = []
        self.reports: list[Report] = []

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name in self.failing:
            raise OutputError(f"{name} fails")

    def _write(self, report: Report) -> None:
        self._call("write")
        self.reports.append(report)

    def reopen(self) -> None:
        self._call("reopen")

    def close(self) -> None:
        self._call("close")

    def abandon(self) -> None:
        self._call("abandon")


@pytest.mark.parametrize("name", ["write", "reopen", "close"])
def test_the_others_have_their_turn_and_the_error_is_raised(name: str) -> None:
    failing, other = Fake(name), Fake()
    outputs = Destinations([failing, other])
    call = {"write": lambda: outputs.write(REPORT), "reopen": outputs.reopen, "close": lambda: outputs.__exit__(None)}
    with pytest.raises(OutputError, match=f"{name} fails"):
        call[name]()
    assert failing.calls == other.calls == [name]


def test_a_second_attempt_goes_only_to_those_that_failed() -> None:
    failing, other = Fake("write"), Fake()
    outputs = Destinations([failing, other])
    later = Report(rows=[], revision=2)
    for report in (REPORT, later):
        with pytest.raises(OutputError):
            outputs.write(report)
    failing.failing = ()
    outputs.write(REPORT)
    outputs.write(later)
    assert (failing.calls, other.calls) == (["write"] * 4, ["write"] * 2)
    outputs.write(REPORT)  # the next run of the same window is another report
    assert (failing.calls, other.calls) == (["write"] * 5, ["write"] * 3)


@pytest.mark.parametrize(("error", "call"), [(None, "close"), (KeyboardInterrupt, "close"), (OutputError, "abandon")])
def test_a_run_that_fails_abandons_its_results(error: type[BaseException] | None, call: str) -> None:
    fake = Fake()
    Destinations([fake]).__exit__(error)
    assert fake.calls == [call]


@contextmanager
def reader_gone() -> Iterator[None]:
    read, write = os.pipe()
    os.close(read)
    out = os.fdopen(write, "w")
    with redirect_stdout(out):
        yield
    with suppress(BrokenPipeError):  # what was not written is lost
        out.close()


def test_the_reader_of_standard_output_may_go_where_results_are_wanted_elsewhere() -> None:
    with reader_gone(), pytest.raises(BrokenPipeError):
        Destinations([StandardOutput("json")]).write(REPORT)
    with reader_gone():
        outputs = Destinations([StandardOutput("json"), Fake()])
        outputs.outlive_reader()
        for _ in range(2):
            outputs.write(REPORT)
    assert outputs.status("standard output")["reports"] == 2
    assert outputs.status("nowhere") == {"reports": 0, "rows": 0, "failures": 0, "waiting": 0, "dropped": 0}


def test_a_queue_says_when_its_destination_is_not_read_and_what_is_lost() -> None:
    opened, said = threading.Event(), list[str]()

    class Slow(Fake):
        def _write(self, report: Report) -> None:
            assert opened.wait(600)
            super()._write(report)

    queued = BackgroundStdout(Slow(), said.append, patience=0.01, most=2)
    for _ in range(3):
        queued.write(REPORT)
    assert said == [
        "fake is NOT READ or does not answer: reports for it wait, the other destinations continue",
        "fake: its queue is full; reports LOST so far: 1",
    ]
    assert (queued.status()["waiting"], queued.status()["dropped"]) == (2, 1)
    queued.close()
    assert said[2:] == ["fake: 2 reports NOT DELIVERED, 1 report LOST"]
    opened.set()
