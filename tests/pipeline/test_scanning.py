"""`superhosts.scan`: its signature, reading twice, and what becomes of sketches."""

from __future__ import annotations

import inspect
import os
import threading
import weakref
from dataclasses import fields
from pathlib import Path

import pytest

import superhosts as sh
from superhosts.pipeline.settings import Settings
from traffic import three_windows, write


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    return write(tmp_path / "a.pcap", three_windows())


def test_every_setting_is_an_argument_with_the_same_default() -> None:
    arguments = inspect.signature(sh.scan).parameters
    kinds = {each.kind for name, each in arguments.items() if name != "inputs"}
    assert kinds == {inspect.Parameter.KEYWORD_ONLY}
    assert {each.name for each in fields(Settings)} <= set(arguments)
    for each in fields(Settings):
        default = arguments[each.name].default
        if each.name == "window":
            assert default is None  # short inputs are joined unless a length is given
        else:
            assert ((default,) if each.name in ("watch", "direction") else default) == each.default
    assert inspect.signature(sh.scan).return_annotation == "Scan"
    with pytest.raises(TypeError, match="unexpected keyword argument 'memroy'"):
        sh.scan("a.pcap", memroy=3)  # type: ignore[call-arg]
    for name in arguments:
        assert f"`{name}`" in (sh.scan.__doc__ or "") or name == "inputs"


def windows_of(run: object) -> list[tuple[int, int, list[str]]]:
    return [(each.window.start, each.packets, [str(row.host) for row in each]) for each in run]  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["file", "folder", "synth", "pattern"])
def test_another_loop_reads_again(capture: Path, kind: str) -> None:
    inputs = {
        "file": capture,
        "folder": str(capture.parent),
        "pattern": str(capture.parent / "*.pcap"),
        "synth": "synth:flows=2k,packets=5k,windows=2,super_hosts=0",
    }
    run = sh.scan(inputs[kind], window="5m", top=3, memory="1MiB", device="cpu")
    first = windows_of(run)
    packets = run.counters.packets
    assert len(first) > 1
    assert windows_of(run) == first
    assert run.counters.packets == packets  # of the last reading
    for _ in run:  # a loop that is left
        break
    assert windows_of(run) == first


def test_a_pipe_is_read_once(capture: Path) -> None:
    reader, writer = os.pipe()

    def feed() -> None:
        with os.fdopen(writer, "wb") as end:
            end.write(capture.read_bytes())

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        run = sh.scan(f"/dev/fd/{reader}", memory="1MiB", device="cpu")
        assert sum(each.packets for each in run) > 0
        with pytest.raises(sh.UsageError, match=rf"^/dev/fd/{reader}: was read, and can be read only once; keep its"):
            iter(run)
    finally:
        thread.join()
        os.close(reader)


def test_the_sketch_of_a_window_is_freed_when_the_next_comes(capture: Path) -> None:
    last, parts = None, []
    for window in sh.scan(capture, window="5m", memory="1MiB", device="cpu"):
        assert window.sketch.parts
        parts.append(weakref.ref(next(iter(window.sketch.parts.values()))))
        if last is not None:
            with pytest.raises(sh.UsageError, match=r"freed when the next window came; scan\(…, keep_sketch=True\)"):
                _ = last.sketch
            assert parts[-2]() is None
        assert last is None or len(last) >= 0  # The rows stay.
        last = window
    assert last is not None
    assert last.sketch.parts  # No window came after it.
    kept = list(sh.scan(capture, window="5m", memory="1MiB", device="cpu", keep_sketch=True))
    assert len(kept) > 1
    assert all(window.sketch.parts for window in kept)


def test_a_thread_frees_its_own_windows_only(capture: Path) -> None:
    windows = iter(sh.scan(capture, window="5m", memory="1MiB", device="cpu"))
    mine, others = next(windows), []
    thread = threading.Thread(target=lambda: others.append(next(windows)))
    thread.start()
    thread.join()
    assert mine.sketch.parts
    next(windows)
    assert others[0].sketch.parts
    with pytest.raises(sh.UsageError, match="keep_sketch=True"):
        _ = mine.sketch


def test_a_scan_says_what_it_reads_and_how_far_it_has_come(capture: Path) -> None:
    run = sh.scan(capture, window="5m", memory="1MiB", device="cpu")
    assert repr(run) == f"<Scan: {capture}, window 5m, cube 1 MiB, cpu; not begun>"
    windows = iter(run)
    next(windows)
    assert "; begun (" in repr(run)
    for _ in windows:
        pass
    assert repr(run).endswith(f"; read ({run.counters.packets:,} packets, {run.counters.pairs:,} pairs)>")
    assert repr(sh.scan([capture, capture])).startswith("<Scan: 2 inputs, window 5m, cube 128 MiB, auto;")
