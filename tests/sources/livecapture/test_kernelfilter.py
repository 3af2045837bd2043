"""The filter that ends repeats in the kernel, run by the kernel with packets of ours and in front of real captures."""

from __future__ import annotations

import ctypes
import os
import random
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import packets as p
from commands import Run
from netns import Namespace, namespace
from superhosts.core.units import SECOND
from superhosts.sources import kernelfilter
from superhosts.sources.kernelfilter import GUARD, LEAST_SPAN, PROG_TEST_RUN, Repeats
from traffic import Frames, write

SNAP, SPAN = 128, 300 * SECOND
WIDE = 20 * SECOND  # around the end of a window, so that a busy machine is still there
ALL = ("--window", "all", "--threshold", "1")


def made(span: int = 0) -> Repeats:
    """Return a filter that knows how fast the kernel's clock ticks."""
    try:
        repeats = Repeats(span, SNAP)
    except OSError as error:
        if os.environ.get("SUPERHOSTS_NEED_BPF"):
            raise
        pytest.skip(f"no eBPF programs here: {error.strerror}")
    repeats.tell()
    while repeats._told - repeats._began.now < SECOND // 2:  # a busy machine may not read its clocks at once
        time.sleep(0.6)
        tell(repeats)
    return repeats


def tell(repeats: Repeats) -> None:
    repeats._due = 0  # now, not in a second
    repeats.tell()


@pytest.fixture
def repeats() -> Iterator[Repeats]:
    found = made()
    yield found
    found.close()


def passes(repeats: Repeats, frame: bytes) -> bool:
    packet = ctypes.create_string_buffer(frame, len(frame))
    asked = struct.pack("=4I2Q2I", repeats._program, 0, len(frame), 0, ctypes.addressof(packet), 0, 1, 0)
    answer = struct.unpack_from("=I", kernelfilter._answer(PROG_TEST_RUN, asked), 4)[0]
    assert answer in (0, SNAP)
    return bool(answer)


def frame_of(source: int, target: int, family: int) -> bytes:
    if family == 4:
        return p.ethernet(0x0800, p.ipv4(f"10.0.{source}.1", f"10.{target >> 8}.{target & 255}.2"))
    return p.ethernet(0x86DD, p.ipv6(f"2001:db8::{source:x}", f"2001:db8:1::{target:x}"))


@pytest.mark.parametrize("bits", [(20, 16), (3, 2)], ids=["default", "with collisions"])
def test_a_pair_that_is_new_is_let_through(bits: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernelfilter, "BITS4", bits[0])
    monkeypatch.setattr(kernelfilter, "BITS6", bits[1])
    repeats, random_pairs = made(), random.Random(1)
    seen: set[tuple[int, int, int]] = set()
    dropped = {4: 0, 6: 0}
    for _ in range(6000):
        pair = random_pairs.randrange(20), random_pairs.randrange(30), random_pairs.choice((4, 6))
        if passes(repeats, frame_of(*pair)):
            assert bits[0] == 3 or pair not in seen or pair[2] == 6  # without collisions once only
        else:
            assert pair in seen
            dropped[pair[2]] += 1
        seen.add(pair)
    assert repeats.dropped() == (dropped[4], dropped[6])
    assert min(dropped.values()) > (2000 if bits[0] > 3 else 3)
    repeats.close()


def test_what_is_no_ip_header_is_let_through(repeats: Repeats) -> None:
    whole = frame_of(1, 1, 4)
    others = [
        p.ethernet(0x0806, bytes(40)),  # ARP
        whole[:14] + b"\x65" + whole[15:],  # another version
        p.ethernet(0x86DD, p.ipv4("10.0.1.1", "10.0.1.2") + bytes(40)),
    ]
    for each in others:
        assert passes(repeats, each)
        assert passes(repeats, each)
    assert passes(repeats, whole)  # none of them was taken for this pair
    assert not passes(repeats, whole)
    assert passes(repeats, p.ethernet(0x0800, p.ipv4("10.0.1.2", "10.0.1.1")))  # the other way


def test_pairs_that_may_be_lost_are_let_through_again(repeats: Repeats) -> None:
    frames = [frame_of(1, 1, family) for family in (4, 6)]
    assert [passes(repeats, each) for each in frames * 2] == [True, True, False, False]
    repeats.forget()
    while repeats._is_stale:
        tell(repeats)
    assert [passes(repeats, each) for each in frames * 2] == [True, True, False, False]


@pytest.mark.parametrize(
    ("at", "drops"),
    [(SPAN // 2, True), (2 * WIDE, True), (WIDE // 2, False), (SPAN - WIDE // 2, False), (SPAN - 2 * WIDE, True)],
)
def test_around_the_end_of_a_window_everything_is_let_through(
    at: int, drops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wall clock that ticks as the kernel does, and stands at a place of a window 0.6 seconds after it begins."""
    monkeypatch.setattr(kernelfilter, "GUARD", WIDE)
    begun = time.monotonic_ns()
    wall = 1000 * SPAN + at - 6 * SECOND // 10

    def clock() -> int:
        return wall + time.monotonic_ns() - begun

    monkeypatch.setattr(kernelfilter, "time", SimpleNamespace(time_ns=clock, monotonic_ns=time.monotonic_ns))
    repeats = made(SPAN)
    assert passes(repeats, frame_of(1, 1, 4))
    assert passes(repeats, frame_of(1, 1, 4)) is not drops
    repeats.close()


def test_a_clock_that_is_set_makes_all_pairs_new(monkeypatch: pytest.MonkeyPatch) -> None:
    offset = [0]
    middle = SPAN // 2 - time.time_ns() % SPAN  # so that no window ends while the test runs

    def clock() -> int:
        return time.time_ns() + middle + offset[0]

    monkeypatch.setattr(kernelfilter, "time", SimpleNamespace(time_ns=clock, monotonic_ns=time.monotonic_ns))
    repeats, frame = made(SPAN), frame_of(1, 1, 4)
    assert [passes(repeats, frame), passes(repeats, frame)] == [True, False]
    tell(repeats)
    assert not passes(repeats, frame)
    offset[0], before = SECOND, repeats._forgotten
    while repeats._forgotten == before:
        tell(repeats)
    assert [passes(repeats, frame), passes(repeats, frame)] == [True, False]
    repeats.close()


@pytest.mark.slow
def test_a_pair_is_let_through_in_each_window_and_then_dropped() -> None:
    repeats, frame, span = made(LEAST_SPAN), frame_of(1, 1, 6), LEAST_SPAN
    let: dict[int, int] = {}
    until = time.monotonic() + 3.2 * span / SECOND
    while time.monotonic() < until:
        repeats.tell()
        place = time.time_ns() % span
        if 2 * GUARD < place < span - 2 * GUARD:
            window = time.time_ns() // span
            let[window] = let.get(window, 0) + passes(repeats, frame)
        time.sleep(0.01)
    whole = sorted(let)[1:]  # of the first one only a part was seen
    assert len(whole) >= 2
    # Once, or more often where a busy machine did not read its clocks at once: then everything is let through.
    assert all(let[window] >= 1 for window in whole)
    assert repeats.dropped()[1] > len(whole)
    repeats.close()


def trains() -> Frames:
    """Return packets of 700 pairs of both families, each of which comes six times, shuffled."""
    pairs = [(source, target, family) for source in range(7) for target in range(50) for family in (4, 6)] * 6
    random.Random(2).shuffle(pairs)
    return [(number * 1000, frame_of(*pair)) for number, pair in enumerate(pairs)]


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Namespace]:
    with namespace(tmp_path) as found:
        yield found


def test_a_capture_counts_what_the_kernel_dropped_and_finds_the_same_hosts(
    net: Namespace, run: Run, tmp_path: Path
) -> None:
    frames = trains()
    made().close()  # or the test is skipped
    from_file = {
        row["host"]: row["peers"] for row in run("scan", str(write(tmp_path / "f", frames)), "--json", *ALL).rows
    }
    for name, drops in (("live:near0", True), ("live:any", True), ("live:near0?repeats=yes", False)):
        capture = net.start("scan", name, *ALL).ready()
        time.sleep(4 if drops else 0)  # until the program knows how fast the kernel's clock ticks
        net.send(frames, "near0" if name == "live:any" else "far0")
        capture.end()
        assert capture.found == from_file, name
        counters = capture.counters
        both = 2 if name == "live:any" else 1  # it sees what is sent as well
        assert (counters["packets"], counters["drops"], counters["not_counted"]["unused"]) == (both * len(frames), 0, 0)
        assert (counters["repeats"] > 1000) is drops
        assert ("stopped in the kernel" in capture.err) is drops


@pytest.mark.parametrize(
    "options",
    [("--evidence",), ("--peers", "opened"), ("--count", "ports"), ("--tunnels", "inner"), ("--filter", "ip or ip6")],
    ids=lambda options: options[0],
)
def test_where_each_packet_is_wanted_none_is_dropped(net: Namespace, options: tuple[str, ...]) -> None:
    capture = net.start("scan", "live:near0", *ALL, *options).ready()
    time.sleep(1.5)
    net.send(trains())
    capture.end()
    assert (capture.counters["packets"], capture.counters["repeats"]) == (len(trains()), 0)


def test_without_the_right_a_capture_works_as_before(net: Namespace) -> None:
    frames = trains()
    net.inside = (*net.inside, "setpriv", "--bounding-set=-all,+net_raw,+net_admin", "--inh-caps=-all")
    capture = net.start("scan", "live:near0", *ALL).ready()
    time.sleep(1.5)
    net.inside = net.inside[: net.inside.index("setpriv")]
    net.send(frames)
    capture.end()
    assert (capture.counters["packets"], capture.counters["repeats"]) == (len(frames), 0)
