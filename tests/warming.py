"""Every kind of input and every command on small data: together they use the hot loops that commands and tests use.

`recording.py` writes what they use to the record of the package. A parallel run of the tests compiles all of that
before its workers start (`warm_up`). `tests/jit/test_second_run.py` proves that a second process compiles nothing.

    python tests/warming.py tables detectors    # run these shares in this process
"""

from __future__ import annotations

import contextlib
import gzip
import inspect
import io
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from isolation import isolate
from superhosts.lab.lineup import RIVALS

Step = Callable[[], Any]
CAPTURES = Path(__file__).parent / "first_hour" / "captures"
KNOWN = ["--inner", "10.0.0.0/8", "--threshold", "100"]
SMALL = [*KNOWN, "--memory", "8MiB"]


def warm_up() -> None:
    """Compile the loops of the record, unless an earlier run has."""
    from superhosts.jit.cache import missing_loops

    tests = str(Path(__file__).parent)
    commands = [["-c", "from superhosts.jit.cache import compile_all; compile_all()"]] if missing_loops() else []
    if commands:
        commands.append(["-m", "pytest", "--collect-only", "-qq", tests])  # bytecode of all tests
    silent = {"env": {**os.environ, "PYTHONPATH": os.pathsep.join([tests, *sys.path])}, "stdout": subprocess.DEVNULL}
    started = [subprocess.Popen([sys.executable, *command], **silent) for command in commands]
    assert [process.wait() for process in started] == [0] * len(started)


def concerns_a_rival(values: Iterable[Any]) -> bool:
    """Return True if one of the parameters of a test is the name or the file of a rival."""
    return any(Path(each).stem in RIVALS for each in values if isinstance(each, str | Path))


def run(*arguments: object, given: bytes = b"") -> Step:
    """Return a step that runs `superhosts ARGUMENTS` in this process with these bytes as standard input."""

    def call() -> None:
        from faults import FakeStdin
        from superhosts import cli

        before = sys.argv, sys.stdin, sys.stdout
        sys.argv, sys.stdin = ["superhosts", *map(str, arguments)], FakeStdin(given)
        sys.stdout = io.TextIOWrapper(io.BytesIO(), write_through=True)
        status: Any = 0
        try:
            cli.main()
        except SystemExit as ended:
            status = ended.code
        finally:
            sys.argv, sys.stdin, sys.stdout = before
        assert not status, f"superhosts {' '.join(map(str, arguments))}: status {status}"

    return call


# Inputs


def texts(folder: Path) -> Iterator[Step]:
    """Logs and tables of text: a line of each format with and without the columns of ports and flags."""
    from docs.logs import write_logs

    write_logs(folder)
    zeek = [{"ts": 1.5, "id.orig_h": "10.0.0.1", "id.resp_h": f"192.0.2.{n}", "proto": "tcp"} for n in range(9)]
    (folder / "zeek.json").write_text("".join(json.dumps(row) + "\n" for row in zeek))
    (folder / "rows.jsonl").write_text('{"src": "2001:db8::2", "dst": "2001:db8::1"}\n' * 9)
    (folder / "rows.tsv").write_text("ts\tsrc\tdst\n" + "1700000000\t10.0.0.1\t192.0.2.1\n" * 9)
    (folder / "rows.csv.gz").write_bytes(gzip.compress(b"time,src,dst\n" + b"2024-01-01 00:00:00,::1,::2\n" * 9))
    for name in ("conn.log", "eve.json", "flows.csv", "zeek.json", "rows.jsonl", "rows.tsv", "rows.csv.gz"):
        given = ["--map", "src=client,dst=server,time=seen"] if name == "flows.csv" else []
        yield run("scan", folder / name, *SMALL, *given, "--window", "all", "--json", "-q")
    for name in ("conn.log", "eve.json"):
        yield run("scan", folder / name, *SMALL, "--peers", "answered", "--evidence", "--json", "-q")
    yield run("scan", "-", *SMALL, "--window", "all", "--json", "-q", given=(folder / "conn.log").read_bytes())


def captures(folder: Path) -> Iterator[Step]:
    """Captures of each format and compression, and all that may be counted of their packets."""
    import zstandard

    import packets as p
    from traffic import three_windows, write

    frames = three_windows()
    capture = write(folder / "a.pcap", frames)
    (folder / "b.pcap").write_bytes(p.pcap(frames[:99], magic=p.NANO, order=">"))
    packed = [p.enhanced(time // 1000, frame) for time, frame in frames[:99]]
    (folder / "c.pcapng").write_bytes(p.section() + p.interface() + b"".join(packed) + p.simple(frames[0][1]))
    (folder / "d.pcap.gz").write_bytes(gzip.compress(capture.read_bytes()))
    (folder / "e.pcap.zst").write_bytes(zstandard.compress(capture.read_bytes()))
    for name in ("a.pcap", "b.pcap", "c.pcapng", "d.pcap.gz", "e.pcap.zst"):
        yield run("scan", folder / name, *SMALL, "--json", "-q")
    yield run("scan", folder / "c.pcapng", *SMALL, "--peers", "opened", "--json", "-q")
    yield run("scan", "-", *SMALL, "--json", "-q", given=capture.read_bytes())
    office, services = CAPTURES / "office.pcap.gz", CAPTURES / "services.pcap.gz"
    yield run("scan", office, "--inner", "private", "--top", "5", "--slide", "1m", "--json", "-q")
    for more in (
        ["--evidence"],
        ["--evidence", "--exact", "off", "--peers", "opened,unanswered"],
        ["--count", "ports"],
        ["--count", "host-ports"],
        ["--by", "address-port"],
        ["--by", "address-port", "--exact", "off"],
        ["--proto", "tcp", "--port", "443,8000-8100", "--tunnels", "inner"],
        ["--tunnels", "both", "--direction", "in", "--special", "keep", "--exclude", "10.20.0.53/32"],
        ["--ipv4-prefix", "24", "--watch", "outer"],
    ):
        yield run("scan", services, "--inner", "private", "--threshold", "5", *more, "--json", "-q")


def exports(folder: Path) -> Iterator[Step]:
    """Flow exports of each version: files of datagrams, captures of them, and one from a socket."""
    import exports as e
    import packets as p
    from sources.exports.test_files import DATAGRAMS
    from sources.exports.test_files import capture as captured

    for name, datagrams in DATAGRAMS.items():
        (folder / name).write_bytes(b"".join(datagrams))
        (folder / f"{name}.pcap").write_bytes(p.pcap(captured(*datagrams)))
        form = "sflow" if name == "sflow" else "netflow"
        yield run("scan", folder / name, *SMALL, "--json", "-q")
        yield run("scan", folder / name, *SMALL, "--evidence", "--peers", "opened", "--json", "-q")
        yield run("scan", folder / f"{name}.pcap", *SMALL, "--format", form, "--json", "-q")
    header = e.raw_header(p.ethernet(0x0800, p.ipv4()))
    (folder / "raw").write_bytes(e.sflow(e.flow_sample(header)) * 2)
    yield run("scan", folder / "raw", *SMALL, "--json", "-q")
    yield partial(_receive, DATAGRAMS["v5"])
    yield run("scan", CAPTURES / "services.ipfix.gz", "--inner", "private", "--threshold", "5", "--json", "-q")


def _receive(datagrams: list[bytes]) -> None:
    """Receive datagrams on a port."""
    from processes import free_port
    from superhosts.sources.open import open_all
    from udp import send

    port = free_port()
    (source,) = open_all(f"netflow://127.0.0.1:{port}?templates=none")
    source.open()
    send(port, *datagrams)
    source.stop()
    assert sum(sum(map(len, block)) for block in source.blocks())


def tables(folder: Path) -> Iterator[Step]:
    """Parquet and Arrow, with columns of each type."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import ipc

    from sources.tables.test_binary_tables import BOTH, NARROW, SOURCES, TARGETS, TIMES, WIDE, ends

    def write(number: int, columns: Any) -> Iterator[Step]:
        table = pa.table(columns)
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=300)
        with ipc.new_file(folder / f"{number}.arrow", table.schema) as writer:
            writer.write_table(table, max_chunksize=300)
        for ending in ("parquet", "arrow"):
            yield run("scan", folder / f"{number}.{ending}", *SMALL, "--window", "all", "--json", "-q")

    number = 0
    for kind in NARROW.values():
        yield from write(number := number + 1, {"src": kind(SOURCES), "dst": kind(TARGETS)})
    for kind in WIDE.values():
        src, dst = map(kind, ends(BOTH))
        yield from write(number := number + 1, {"src": src, "dst": dst})
    for times in TIMES.values():
        yield from write(number := number + 1, {"src": SOURCES, "dst": TARGETS, "ts": times})


def rows() -> Iterator[Step]:
    """Rows from standard input in each format."""
    from cli.test_rows import LISTED, TIMED, stream_of, text

    yield run("rows", "--out", "CSV", *SMALL, given=LISTED)
    yield run("rows", "--out", "JSONEachRow", *SMALL, given=TIMED)
    yield run("rows", "--schema", "src,dst", "--format", "CSV", *SMALL, given=text("{},{}"))
    yield run("rows", "--chunks", *SMALL, given=b"1\n" + stream_of({"src": [["10.0.0.1"]], "dst": [["192.0.2.1"]]}))


# Detectors


def use(name: str, folder: Path, exact: bool | None = None) -> None:
    """Scan a small capture with a detector, then save, load, merge and query its sketches."""
    import superhosts as sh
    from traffic import three_windows, write

    union, capture = sh.Sketch(), write(folder / "a.pcap", three_windows())
    for result in sh.scan(capture, detector=name, inner="10.0.0.0/8", device="cpu", exact=exact):
        result.sketch.save(folder / "a.cube")
        sh.load(folder / "a.cube").estimate("10.0.0.7")
        with contextlib.suppress(sh.MergeError):  # Some detectors cannot be merged.
            union.merge_file(folder / "a.cube")
    union.super_hosts(1024)


def commands(folder: Path) -> Iterator[Step]:
    """All commands that compile: those of sketches, of plans, and of synthetic traffic."""
    folder.mkdir()
    made = folder / "made.pcap"
    yield run(
        "synth", made, "--flows", "9k", "--packets", "20k", "--super-hosts", "2", "--seed", "7", "--family", "both"
    )
    for kept, more in (
        ("rows", []),
        ("bits", ["--exact", "off", "--evidence"]),
        ("cbaa", ["--detector", "cbaa", "--memory", "8MiB"]),
    ):
        yield run("scan", made, *SMALL, *more, "--save", folder / kept, "--json", "-q")
        yield from _asking(folder / kept)
    for more in (
        ["--inner", "10.0.0.0/8,2001:db8::/32"],
        ["--inner", "private", "--exclude", "2001:db8:1::/48,fc00::1"],
    ):
        yield run("scan", made, "--top", "3", *more, "--json", "-q")
        yield run("scan", made, "--top", "3", *more, "--evidence", "--json", "-q")
    yield run("scan", made, "--memory", "64KiB", "--top", "3", "--json", "-q")  # a stream that has forgotten its pairs
    yield run("plan", "--flows", "5M")
    yield run("plan", "--flows", "1M", "--error", "1%")
    yield run("calibrate", made, *SMALL)
    yield run("calibrate", made, *SMALL, "--exact", "off")
    yield run("doctor")


def _asking(kept: Path) -> Iterator[Step]:
    """Ask the saved sketches of a folder all that commands ask."""
    one, *_ = sketches = sorted(kept.glob("*.cube"))
    yield run("hosts", *sketches, "--threshold", "100", "--json")
    yield run("hosts", *sketches, "--union", "--top", "3", "--json")
    yield run("explain", one, "10.0.0.7")
    yield run("merge", *sketches, "-o", kept / "union.sketch")


def large(folder: Path) -> Iterator[Step]:
    """Captures that several threads read, in pieces."""
    import packets as p

    size = ["--flows", "90k", "--packets", "250k", "--super-hosts", "2"]
    yield run("synth", folder / "large.pcap", *size, "--seed", "7")
    time, frame = 1_700_000_000, p.ethernet(0x0800, p.ipv4())
    packets = b"".join(p.enhanced(time * 1_000_000, frame) for _ in range(99))
    (folder / "large.pcapng").write_bytes(p.section() + p.interface() + packets * (16_000_000 // len(packets)))
    for name in ("large.pcap", "large.pcapng"):
        for more in ([], ["--evidence"]):
            yield run("scan", folder / name, *KNOWN, *more, "--json", "-q")


def live() -> Iterator[Step]:
    """What runs that receive rehearse: those of packets, and of flow exports."""
    for name in ("live:lo", "netflow://127.0.0.1:2055?templates=none"):
        for more in ({}, {"evidence": True}, {"slide": "1m"}):
            yield partial(_rehearse, name, {"inner": ["private"], "threshold": 100, **more})


def _rehearse(name: str, given: dict[str, Any]) -> None:
    from superhosts.jit.ahead import set_command
    from superhosts.pipeline.rehearsal import rehearse
    from superhosts.pipeline.settings import settings_of
    from superhosts.sources.open import open_all

    set_command("watch")
    settings = settings_of(given)
    rehearse(settings, sources=open_all(name), saves=True, merges=True)


def cases(folder: Path, *tests: Callable[..., None], rivals: bool = False) -> Iterator[Step]:
    """Yield the calls of tests, one for each set of their parameters: those that name a rival, or all others."""
    for test in tests:
        marks = [mark.args for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
        for values in product(*(values for _, values in marks)):
            given: dict[str, Any] = {}
            for (names, _), value in zip(marks, values, strict=True):
                several = names.split(",") if isinstance(names, str) else names
                given.update(zip(several, value, strict=True) if len(several) > 1 else {several[0]: value})
            if concerns_a_rival(given.values()) != rivals:
                continue
            if "tmp_path" in inspect.signature(test).parameters:
                given["tmp_path"] = Path(tempfile.mkdtemp(dir=folder))
            yield partial(test, **given)


def detectors(folder: Path, names: Iterable[str]) -> Iterator[Step]:
    """Detectors as a scan uses them, and as Python does, with peers of every width."""
    from detectors import test_laws as laws

    shape = laws.SHAPES[0]
    for name in names:
        yield partial(use, name, folder)
        yield lambda name=name: _ask_all(laws.fed(name, shape.hosts, shape.peers), folder)
        for peers in (shape.peers.astype(np.uint64) << 20, np.stack([shape.peers.astype(np.uint64)] * 2, axis=1)):
            yield partial(laws.fed, name, shape.hosts, peers)


def on_gpu() -> None:
    """What a cube on a GPU does on the CPU: there is a stand-in for the GPU, and its kernels are empty."""
    from hostgpu import host_gpu
    from superhosts.detectors.cube import Cube
    from superhosts.detectors.gpu import driver, launch

    with host_gpu(), patch.object(launch.Kernel, "_compiled", lambda *_: driver.Function(b"code", "name")):
        cube = Cube(device="cuda:0", exact=False)
        addresses = np.arange(9, dtype=np.uint32)
        cube.update(addresses, addresses)
        cube.super_hosts(1000)


def keyed(folder: Path) -> Iterator[Step]:
    """Detectors of hosts that are integers or texts."""
    from detectors import test_generic_keys as generic

    for name, keys in product(generic.HOLDERS, generic.KINDS):
        yield lambda name=name, keys=keys: _ask_all(generic.fed(name, keys, *generic.traffic(keys)), folder)


def _ask_all(detector: Any, folder: Path) -> None:
    """Query, save, load, copy and merge a detector."""
    import superhosts as sh

    detector.estimate_many([row.host for row in detector.super_hosts(50)])
    detector.save(folder / "one.cube")
    copy = detector.copy()
    with contextlib.suppress(sh.MergeError):  # Some detectors cannot be merged.
        copy.merge(sh.load(folder / "one.cube"))


def parts(folder: Path) -> Iterator[Step]:
    """Loops that need more than a small file: pieces of a large capture, rings, columns of text."""
    import superhosts as sh
    from core.columns import test_address_text as address_text
    from detectors import test_cube_stages as stages
    from detectors import test_estimates_of_many as estimates
    from detectors import test_host_names as host_names
    from detectors import test_host_rows as host_rows
    from detectors import test_narrowing as narrowing
    from sketch import test_golden as golden
    from sources import test_capture_pieces as pieces
    from sources import test_kafka as kafka
    from sources.livecapture import test_parts as ring
    from sources.tables import test_details as details
    from traffic import three_windows, write

    for path in (write(folder / "pieces.pcap", three_windows()), pieces.write(folder, pieces.mixed_pcapng())):
        yield partial(pieces.check, path, 4096)
        yield partial(_read_details, path)
    yield lambda: kafka.read_protobuf([b""], kafka.GOFLOW2)
    yield lambda: sh.Exact().update(["10.0.0.1"], ["192.0.2.1"])
    yield from cases(
        folder,
        address_text.test_every_form_of_an_address,
        narrowing.test_integers_are_those_of_narrow_columns,
        host_names.test_long_odd_and_empty_names,
        ring.test_a_walk_goes_on_inside_a_block,
        details.test_all_formats_give_the_same_details,
        golden.test_a_golden_file_gives_its_answers,
        golden.test_a_golden_file_survives_being_written_again,
        stages.test_answers_are_those_of_the_exact_detector_and_arrays_those_of_a_dense_cube,
        host_rows.test_a_file_of_rows_is_a_dense_cube_through_every_door,
        estimates.test_lines_in_vector_registers_give_the_ones_of_the_plain_loop,
    )


def _read_details(path: Path) -> None:
    """Read a capture in pieces, with what its packets say besides addresses."""
    from superhosts.sources.base import Wants
    from superhosts.sources.capture import Cutting, open_capture

    source = open_capture(path, cutting=Cutting(4096, 4096, threads=2))
    source.want(Wants(details=True))
    assert sum(sum(map(len, block)) for block in source.blocks())


def _captures(folder: Path) -> Iterator[Step]:
    yield from captures(folder)
    yield from commands(folder / "commands")
    yield from large(folder)
    yield from live()


def _tables(folder: Path) -> Iterator[Step]:
    for make in (texts, exports, tables):
        (folder / make.__name__).mkdir()
        yield from make(folder / make.__name__)
    yield from rows()


def _detectors(folder: Path) -> Iterator[Step]:
    from superhosts.sketch.sketch import DETECTORS

    yield from detectors(folder, DETECTORS)
    yield partial(use, "cube", folder, exact=False)
    yield on_gpu
    yield from keyed(folder)
    yield from parts(folder)


def _rivals(folder: Path) -> Iterator[Step]:
    from detectors import test_laws as laws
    from lab import test_rivals as rivals

    tests = laws.test_neither_order_nor_repetition_nor_batches_matter, laws.test_merging_equals_having_seen_both_streams
    yield from cases(folder, *tests, rivals.test_wide_peers, rivals.test_a_scan_may_name_a_rival, rivals=True)
    made = ["--flows", "9k", "--packets", "20k", "--json"]
    yield run("compare", *made, "--windows", "1", "--super-hosts", "2", "--memory", "16MiB")
    yield run("bench", *made, "--memory", "2MiB")


# What each process compiles. The first needs no package of the tests, so `make` runs it while pip installs them; the
# next two compile what it leaves and take about the same time. `texts` is a part of the second.
SHARES: dict[str, Callable[[Path], Iterator[Step]]] = {
    "captures": _captures,
    "tables": _tables,
    "detectors": _detectors,
    "rivals": _rivals,
    "texts": texts,
}


def main() -> None:
    """Run the shares whose names are given."""
    warnings.simplefilter("ignore")
    isolate()
    if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1":
        import simulator

        simulator.mend()
    for share in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as made:
            for step in SHARES[share](Path(made)):
                step()


if __name__ == "__main__":
    main()
