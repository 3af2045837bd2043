"""Progress on standard error: lines every few seconds, and the bars of scan and batch."""

from __future__ import annotations

import pytest

from superhosts.cli._progress import packet_progress, with_progress


def test_a_line_every_few_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0.0, 1.0, 2.5, 3.0, 5.0])
    assert list(with_progress("abcd", clock=lambda: next(times), show=True)) == list("abcd")
    assert capsys.readouterr().err.splitlines() == ["1 of 4 sketches …", "3 of 4 sketches …"]


def test_packets_every_few_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0.0, 1.0, 2.5, 3.0, 5.0])
    progress = packet_progress(clock=lambda: next(times), show=True)
    for packets in (1000, 2000, 3000, 4000):
        progress(0, packets)
    assert capsys.readouterr().err.splitlines() == ["2,000 packets …", "4,000 packets …"]


def test_nothing_into_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter(range(0, 100, 10))
    list(with_progress("abcd", clock=lambda: next(times)))
    packet_progress(clock=lambda: next(times))(0, 1000)
    assert capsys.readouterr().err == ""
