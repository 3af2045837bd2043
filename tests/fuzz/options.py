"""Text that people write: a value or a UsageError, and what is written reads back as the same."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

import packets as p
from fuzz.mutations import apply, edits
from fuzz.sketches import run_command
from fuzz.targets import fresh_folder, target
from superhosts.cli._sketches import parse_time
from superhosts.cli._values import parse_seconds
from superhosts.core.device import choose_device
from superhosts.core.pairs import HostFormat, Window
from superhosts.core.times import iso_time
from superhosts.core.units import format_duration, format_size, parse_count, parse_duration, parse_share, parse_size
from superhosts.detectors.cube.geometry import Geometry
from superhosts.errors import UsageError
from superhosts.fleet.names import SketchId, check_site, parse_window_name
from superhosts.pipeline.network import Network
from superhosts.sources.synthetic.source import open_synthetic

SECOND = 10**9
GEOMETRY = "slices=64,arrays=3,columns=330,rows=16384,labels=8,share=8"

# Who reads what, with an example of it
READERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "size": (parse_size, "1.5GiB"),
    "count": (parse_count, "100k"),
    "duration": (parse_duration, "90s"),
    "seconds": (parse_seconds, "5m"),
    "share": (parse_share, "1%"),
    "time": (lambda text: parse_time("since", text), "2026-11-14T12:00:00Z"),
    "geometry": (Geometry.parse, GEOMETRY),
    "device": (choose_device, "cpu"),
    "inner": (lambda text: Network([text]), "10.0.0.0/8,2001:db8::/32"),
    "exclude": (lambda text: Network(["10.0.0.0/8"], [text]), "@/dev/null"),
    "host": (HostFormat(6, 64).to_number, "2001:db8::/64"),
    "address": (HostFormat(4, 32).to_number, "10.0.0.1"),
    "site": (check_site, "ams-1"),
    "parcel": (SketchId.parse, "20261114T120000Z-5m-ams-1a2b3c4d5e6f7081.cube"),
    "synthetic": (open_synthetic, "synth:flows=100k,packets=1M,windows=3,share=0.6,part=2,family=4,start=2026-11-14"),
}
_ODD = ("", " ", "-", "+1", "1e5", "1_000", "٣", "²", "½", "nan", "inf", "0x10")
_ODD += ("\0", "\ud800", "é", "\n", "@", "@/", "@.", "::", "0/0")
_long = st.tuples(st.sampled_from(["0", "9", "1.", ",", "/:@é"]), st.integers(100, 6000)).map(
    lambda drawn: drawn[0] * drawn[1]
)


def _near(example: str) -> st.SearchStrategy[str]:
    return st.builds(
        lambda changes, value: apply(example.encode(), changes).decode(errors="surrogateescape").replace("9", value),
        edits,
        st.just("9") | _long,
    )


_texts = st.sampled_from(sorted(READERS)).flatmap(
    lambda name: st.tuples(
        st.just(name), _near(READERS[name][1]) | st.sampled_from(_ODD) | _long | st.text(max_size=20)
    )
)


@target(_texts)
def texts(case: tuple[str, str]) -> None:
    name, text = case
    with contextlib.suppress(UsageError):
        READERS[name][0](text)
    assert parse_window_name(text) is None or name in ("parcel", "time")


_numbers = st.integers(0, 2**49)
_sizes = st.tuples(st.sampled_from([0, 1, 2, 6, 14, 16]), st.integers(1, 8), st.integers(6, 20), st.integers(2, 10**6))


@target(st.tuples(_numbers, _sizes, st.text("ab-_09", min_size=1, max_size=9)))
def written(case: tuple[int, tuple[int, int, int, int], str]) -> None:
    number, (slices, arrays, rows, columns), site = case
    assert abs(parse_size(format_size(number)) - number) <= 0.005 * number
    length = (number % 10**8 + 1) * SECOND
    assert parse_duration(format_duration(length)) == length
    start = number % 10**10 * SECOND
    assert parse_time("since", iso_time(start)) == start
    geometry = Geometry(32, slices, arrays, rows, columns, rows % 7, rows % 17).check()
    assert Geometry.parse(geometry.spelled) == geometry
    with contextlib.suppress(UsageError):
        parcel = SketchId(check_site(site), Window(start, start + length), f"{number:016x}")
        assert SketchId.parse(parcel.name) == parcel


OPTIONS = {
    "--memory": "64KiB",
    "--memory-total": "64MiB",
    "--threshold": "5",
    "--top": "3",
    "--window": "5m",
    "--inner": "10.0.0.0/8",
    "--exclude": "10.1.0.0/16",
    "--ipv4-prefix": "24",
    "--ipv6-prefix": "64",
    "--special": "keep",
    "--site": "ams",
    "--detector": "cube",
    "--watch": "inner",
    "--direction": "any",
    "--device": "cpu",
    "--key-file": "/dev/null",
}
_given = st.sampled_from(sorted(OPTIONS)).flatmap(
    lambda name: st.tuples(st.just(name), st.just(OPTIONS[name]) | _near(OPTIONS[name]) | st.sampled_from(_ODD) | _long)
)


@target(st.lists(_given, min_size=1, max_size=3))
def command_lines(case: list[tuple[str, str]]) -> None:
    """A scan with odd options ends with a status and one line."""
    with fresh_folder() as folder:
        path = folder / "capture.pcap"
        path.write_bytes(p.pcap([(i * SECOND, p.ethernet(0x0800, p.ipv4(f"10.0.0.{i}"))) for i in range(9)]))
        words = [word for option in case for word in option]
        fixed = [word for name in ("--memory", "--device") if name not in words for word in (name, OPTIONS[name])]
        status, shown = run_command("scan", "-q", "--memory-total", "64MiB", path, *fixed, *words)
    assert status in (0, 2, 3), (status, shown)
    assert "Traceback" not in shown
