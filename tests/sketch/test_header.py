"""Unusual headers with valid checksums are accepted with the same meaning, or rejected by file and field."""

from __future__ import annotations

import copy
import json
import re
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import superhosts as sh
from forging import bundle, columns, forge, make, take_apart
from superhosts.core.pairs import HostFormat
from superhosts.cubefile import container as sketchfile
from superhosts.detectors.registry import DETECTORS
from superhosts.errors import SketchFileError, UsageError
from superhosts.sketch.files import read_header
from superhosts.sketch.sketch import MOST_NOTES, Sketch
from traffic import content


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], bytes, Any]:
    """Return the header, blocks and content of a sketch of several parts with window, site and counters."""
    path = tmp_path_factory.mktemp("wide") / "a.cube"
    bundle().save(path)
    return (*take_apart(path), everything(sh.load(path)))


def everything(sketch: Any) -> Any:
    return content(sketch), sketch.window, sketch.sites, sketch.entries, sketch.unlisted, sketch.kinds


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to every value inside a JSON value."""
    yield place
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        yield from places(item, (*place, key))


def replaced(header: Any, place: tuple[Any, ...], new: Any) -> Any:
    if not place:
        return new
    changed = copy.deepcopy(header)
    inside = changed
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = new
    return changed


def check_refusal(error: Exception, path: Path) -> None:
    """Check that an error names the file and the problem, in one printable line of bounded length."""
    text = str(error).replace(str(path), "FILE")
    assert text.startswith("FILE: "), text
    reasons = r"header field [\w.\[\]()]+: |byte 16: damaged: the header |needs .* of memory|written with key "
    assert re.match(f"FILE: ({reasons})", text)
    assert text.isprintable()
    assert len(text) < 500


def test_every_field_left_out_or_doubled(wide: tuple[dict[str, Any], bytes, Any], tmp_path: Path) -> None:
    header, blocks, meaning = wide
    path = tmp_path / "odd.cube"
    for place in places(header):
        if not place or not isinstance(place[-1], str):
            continue
        inside = header
        for key in place[:-1]:
            inside = inside[key]
        less = {name: value for name, value in inside.items() if name != place[-1]}  # type: ignore[attr-defined]
        forge(path, replaced(header, place[:-1], less), blocks)
        try:
            assert everything(sh.load(path))[0] == meaning[0]  # Some fields of counters are optional.
        except SketchFileError as error:
            check_refusal(error, path)
        forge(path, replaced(header, place[:-1], {**inside, "more": 1}), blocks)  # type: ignore[dict-item]
        with pytest.raises(SketchFileError, match=r"header field [\w.\[\]]*more: unknown field"):
            sh.load(path)
        text = json.dumps(header)
        twice = text.replace(f'"{place[-1]}":', f'"{place[-1]}": 0, "{place[-1]}":', 1)
        forge(path, twice.encode(), blocks)
        with pytest.raises(SketchFileError, match=f"header field {place[-1]}: appears twice"):
            sh.load(path)


@pytest.mark.parametrize("name", DETECTORS)
def test_the_header_of_every_detector(tmp_path: Path, name: str) -> None:
    detector = make("tiny" if name == "cube" else name)
    path = tmp_path / "a.cube"
    detector.save(path)
    assert content(sh.load(path)) == content(Sketch.of(detector))
    header, blocks = take_apart(path)
    for place in places(header["parts"][0]):
        for new in (None, True, 1.5, -1, 2**70, "x", [], {}):
            odd = replaced(header, ("parts", 0, *place), new)
            if odd == header:
                continue
            forge(path, odd, blocks)
            with pytest.raises(SketchFileError) as caught:
                read_header(path)
            check_refusal(caught.value, path)
    assert (DETECTORS[name].geometry_type is not None) == ("geometry" in header["parts"][0])


FIELDS = {
    "parts[0].side": [("parts", 0, "side"), [], 7, "x" * 40],
    "parts[0].direction": [("parts", 0, "direction"), "sideways"],
    "parts[0].family": [("parts", 0, "family"), 5, True],
    "parts[0].key": [("parts", 0, "key"), None, "EC1D623FF34371F9", "ec1d"],
    "parts[0].geometry.key_bits": [("parts", 0, "geometry", "key_bits"), 32.0, 33],
    "parts[0].geometry": [("parts", 0, "geometry", "key_bits"), 64],
    "parts[0].format[1]": [("parts", 0, "format", 1), 24, 0, 128],
    "window[0]": [("window", 0), 10**400, 1.0, True],
    "window": [("window",), [5, -5], [1], [1, 2, 3], 7],
    "sites[0]": [("sites", 0), "\ud800", "\x1b[2J", "", "x" * 64, 3],
    "sites": [("sites",), ["a", "a"], "ams"],
    "counters[0]": [("counters",), [1], ["x"], [None]],
    "counters[0].pairs": [("counters", 0, "pairs"), -1, 1.0, 1 << 63],
    "counters[0].end": [("counters", 0, "end"), -1],
    "unlisted": [("unlisted",), False, 1],
    "partial": [("partial",), False, "yes"],
    "arrays[0].dtype": [("arrays", 0, "dtype"), "|O", "<f8", "(9,9)u8", "<i8"],
    "arrays[0].name": [("arrays", 0, "name"), "../../etc", "7/bits"],
    "arrays[0].shape[0]": [("arrays", 0, "shape", 0), 1e308, 2.0, 10**320, True, -1, None],
    "arrays[1].name": [("arrays", 1, "name"), "0/bits"],
    "parts[3]": [("parts",), lambda parts: [*parts, parts[0]]],
    "parts[0].format": [("parts", 0, "family"), 6],
    "parts[0].geometry.more": [("parts", 0, "geometry"), lambda geometry: {**geometry, "more": 1}],
}
RIGHT = {
    "unlisted": ", must be true",
    "parts[0].geometry.key_bits": ", must be one of 32, 64, 128",
    "window[0]": ", must be a whole number: nanoseconds since 1970, in the years 1385 to 2554",
}


@pytest.mark.parametrize("field", FIELDS)
def test_the_error_names_the_field(wide: tuple[dict[str, Any], bytes, Any], tmp_path: Path, field: str) -> None:
    header, blocks, _ = wide
    place, *values = FIELDS[field]
    for value in values:
        if callable(value):
            inside: Any = header
            for key in place:
                inside = inside[key]
            value = value(inside)
        forge(tmp_path / "a.cube", replaced(header, place, value), blocks)
        with pytest.raises(SketchFileError, match=rf"a\.cube: header field {re.escape(field)}: ") as caught:
            sh.load(tmp_path / "a.cube")
        assert caught.value.exit_status == 3
        assert RIGHT.get(field, "") in str(caught.value)  # what would be right


def test_headers_that_are_no_header(tmp_path: Path) -> None:
    constants = [
        f'{{"parts":[],"window":null,"sites":[],"counters":{constant},"arrays":[]}}'.encode()
        for constant in ("NaN", "Infinity", "-Infinity")
    ]
    deep = b'{"arrays":' + b"[" * 500_000 + b"]" * 500_000 + b"}"
    large = b'{"arrays":[' + b"{}," * (20 << 20) + b"{}]}"
    for text, words in (
        *((text, "the header is not JSON") for text in (b"", b"{", b"\xff", b"[1", *constants)),
        *((text, "has no list of arrays") for text in (b"[1]", b"null", b'{"arrays": {}}')),
        (deep, "the header is nested too deeply"),
        (large, "the header takes 60 MiB, the limit is 16 MiB"),
    ):
        path = forge(tmp_path / "a.cube", text, b"")
        with pytest.raises(SketchFileError, match=words):
            read_header(path)
        assert sketchfile.peek(path) is None


# Bounds


@pytest.mark.parametrize("unit", [b"{},", b"[],", b'"",', b"0,", b'{"":{}},', b"[[[["])
def test_a_header_of_very_many_values_costs_next_to_nothing(tmp_path: Path, unit: bytes) -> None:
    text = b'{"arrays":[],"counters":[' + unit * ((sketchfile.MAX_HEADER - 100) // len(unit)) + b"0]}"
    path = forge(tmp_path / "a.cube", text, b"")
    tracemalloc.start()
    try:
        with pytest.raises(SketchFileError, match=r"a\.cube: byte 16: damaged: the header has [0-9,]+ or more values"):
            read_header(path)
        assert tracemalloc.get_traced_memory()[1] < 4 * sketchfile.MAX_HEADER
    finally:
        tracemalloc.stop()


def noted(sites: list[str], starts: list[int]) -> Sketch:
    sketch = Sketch()
    sketch.sites = set(sites)
    sketch.entries = [{"site": f"t{start}", "start": start, "end": start + 5, "pairs": 1} for start in starts]
    sketch.sites |= {entry["site"] for entry in sketch.entries}
    return sketch


def notes(sketch: Sketch) -> Any:
    return sketch.sites, sorted(entry["start"] for entry in sketch.entries), sketch.unlisted


@pytest.mark.slow
def test_sites_and_counters_are_bounded_whatever_the_order() -> None:
    names = [f"s{number:05}" for number in range(MOST_NOTES + 500)]
    starts = list(range(0, 10 * (MOST_NOTES + 700), 10))
    rng = np.random.default_rng(1)
    expected = {*names[:MOST_NOTES], *(f"t{start}" for start in starts[-MOST_NOTES:])}, starts[-MOST_NOTES:], True
    for _ in range(2):
        groups = [
            noted([names[i] for i in rng.choice(len(names), 900)], [starts[i] for i in rng.choice(len(starts), 900)])
            for _ in range(8)
        ]
        groups += [noted(names[i::3], starts[i::3]) for i in range(3)]  # Together these contain all notes.
        left, right = Sketch(), Sketch()
        for group in groups:
            left.merge(group)
        middle = len(groups) // 2
        for group in reversed(groups[:middle]):
            right.merge(group)
        other = Sketch()
        for group in reversed(groups[middle:]):
            other.merge(group)
        right.merge(other)
        assert notes(left) == notes(right) == expected
        left.merge(right)
        left.merge(left)
        assert notes(left) == expected


def test_a_union_of_just_as_many_is_whole() -> None:
    sketch = noted([], list(range(MOST_NOTES)))
    sketch.merge(noted([], list(range(MOST_NOTES))))
    assert not sketch.unlisted
    sketch.merge(noted([], [-1]))
    assert sketch.unlisted
    sketch.clear()
    assert not sketch.unlisted


def test_the_largest_header_that_can_be_written_can_be_sent(tmp_path: Path) -> None:
    """All parts, the longest names and numbers, and more notes than are kept fit into the 1 MiB of a site's header."""
    sketch = Sketch(window=sh.Window(-(2**64), 2**64))
    names = [f"{number:05}" + "x" * 58 for number in range(2 * MOST_NOTES + 10)]
    sketch.sites = set(names)
    for name in names[MOST_NOTES:]:  # sites that are not the first by name
        where = {"site": name, "start": -(2**64), "end": 2**64, "family": 6, "side": "outer", "direction": "any"}
        sketch.entries.append({**where, "pairs": 2**63 - 1, "packets": 2**63 - 1})
    for family, bits in ((4, 32), (6, 64)):
        for side in ("inner", "outer"):
            for way in ("any", "out", "in"):
                sketch.parts[sh.Part(family, side, way)] = make("tiny", bits)
    sketch.save(tmp_path / "a.cube")
    stored = read_header(tmp_path / "a.cube", max_header=sketchfile.SITE_HEADER)
    assert (len(stored.sites), len(stored.entries), stored.unlisted) == (2 * MOST_NOTES, MOST_NOTES, True)
    again = Sketch()
    again.merge_file(tmp_path / "a.cube")
    assert notes(again) == notes(sh.load(tmp_path / "a.cube")) == notes(sketch)


def test_names_of_sites_that_can_be_read_again_are_written(tmp_path: Path) -> None:
    path = tmp_path / "a.cube"
    for site in ("", "\x1b[2J", "a\nb", "\ud800", "x" * 64, "é" * 32, 'a"', "a\\"):
        sketch = bundle()
        sketch.sites.add(site)
        with pytest.raises(UsageError, match=r"a\.cube: cannot be saved: field sites\[[01]\]"):
            sketch.save(path)
        assert not path.exists()
    for site in ("ams", "New York", "[/red]", "Zürich 2", "=1+1", "é" * 31):
        sketch = bundle(site)
        sketch.entries[0]["site"], sketch.entries[1]["site"] = "fra", ""  # a counter may name another one, or none
        sketch.save(path)
        assert read_header(path).sites == {site}
        path.unlink()


# Prefixes


TOO_LONG = [(64, 1, "tiny"), (64, 48, "tiny"), (128, 96, "tiny"), (64, 48, "exact"), (128, 127, "exact")]
TOO_LONG += [(32, 1, "tiny"), (32, 24, "tiny"), (32, 1, "exact"), (32, 24, "exact")]


@pytest.mark.parametrize(("bits", "prefix", "name"), TOO_LONG)
def test_hosts_beyond_the_prefix_of_their_header(tmp_path: Path, name: str, bits: int, prefix: int) -> None:
    """A prefix may have any length, but hosts must have no bits set beyond it."""
    path = tmp_path / "a.cube"
    make(name, bits).save(path)
    header, blocks = take_apart(path)
    header["parts"][0]["format"][1] = prefix
    forge(path, header, blocks)
    said = rf"header field parts\[0\]\.format\[1\]: {prefix}, but bits beyond it are set in .* hosts?"
    for read in (sh.load, Sketch().merge_file):
        with pytest.raises(SketchFileError, match=said):
            read(path)


def test_a_host_with_many_labels_is_one_host(tmp_path: Path) -> None:
    """As in the rows of another file of the same cube, where each host stands once."""
    path = tmp_path / "a.cube"
    cube: Any = sh.Cube(geometry=sh.Geometry(64, 0, 2, 6, 64, 0, 0), exact=False)
    wrong = np.arange(1, 6, dtype=np.uint64)
    right = np.repeat(np.arange(1, 5, dtype=np.uint64) << np.uint64(48), 60)
    cube.update(np.concatenate([wrong, right]), columns(64, 245)[1])
    cube.format = HostFormat(6, 16)
    cube.save(path)
    with pytest.raises(SketchFileError, match="are set in 5 of 9 hosts"):
        sh.load(path)


def test_few_labels_that_name_no_host_prove_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.cube"
    cube: Any = sh.Cube(geometry=sh.Geometry(64, 0, 2, 6, 64, 0, 0))
    hosts = np.repeat(np.arange(1, 6, dtype=np.uint64) << np.uint64(48), 60)
    hosts[:60] |= np.uint64(7)  # One host in five has bits set beyond the prefix.
    cube.update(hosts, columns(64)[1])
    cube.format = HostFormat(6, 16)
    cube.save(path)
    found = {str(item.host) for item in sh.load(path).top(5)}
    assert found == {f"{number}::/16" for number in range(1, 6)}
