"""Two sources of its own, added as CONTRIBUTING.md says: one by a scheme, one by the first bytes of a file."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import superhosts as sh
from commands import Run
from superhosts.core.pairs import PacketBatch, PacketBlock
from superhosts.errors import UsageError
from superhosts.sources.base import Scheme, Source, SourceCounters, Wants
from superhosts.sources.input import FileFormat, Opens, Reader
from superhosts.sources.open import FORMATS, SCHEMES, open_inputs
from traffic import NOON, talk, write

# A source by a scheme: toy:7 is one host that talks to seven peers.


class ToySource(Source):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        number = name.partition(":")[2]
        if not number.isdigit():
            raise UsageError(f"{name}: write the number of peers, like toy:7")
        self._peers = int(number)

    def first_time(self) -> int | None:
        return NOON

    def _read(self) -> Iterator[PacketBlock]:
        host, peers = np.full(self._peers, 0x0A000007, np.uint32), np.arange(self._peers, dtype=np.uint32)
        yield (PacketBatch(4, host, peers, np.full(self._peers, NOON)),)


# A format of files: "TOYFLOWS", then source and destination address of each flow.

MAGIC = b"TOYFLOWS"


class ToyReader(Reader):
    def __init__(self, file: Opens, _counters: SourceCounters, _wants: Wants) -> None:
        self._stream = file.open()
        self._rest = b""

    def read(self) -> PacketBlock | None:
        view = bytearray(1 << 16)
        if not (got := self._stream.readinto(memoryview(view))):
            return None
        data = self._rest + view[:got].removeprefix(MAGIC)
        whole = len(data) - len(data) % 8
        self._rest = bytes(data[whole:])
        ends = np.frombuffer(data[:whole], ">u4").astype(np.uint32).reshape(-1, 2)
        return (PacketBatch(4, ends[:, 0], ends[:, 1], np.full(len(ends), NOON)),) if len(ends) else ()


def toy_flows(peers: int) -> bytes:
    return MAGIC + b"".join(struct.pack(">II", 0x0A000008, peer) for peer in range(peers))


# In the package, these two lines of sources/open.py are all that changes besides the new file.


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    scheme, file = Scheme("toy", ToySource), FileFormat(lambda head: head.startswith(MAGIC), ToyReader)
    SCHEMES.append(scheme)
    FORMATS.append(file)
    yield
    SCHEMES.remove(scheme)
    FORMATS.remove(file)


def found(*inputs: str | Path) -> list[tuple[str, int]]:
    run = sh.scan(inputs, detector="exact", threshold=1, inner="10.0.0.0/8")
    return [(str(item.host), item.peers) for window in run for item in window]


def test_a_scan_in_python(tmp_path: Path) -> None:
    flows, packed = tmp_path / "a.flows", tmp_path / "b.gz"
    flows.write_bytes(toy_flows(5))
    packed.write_bytes(gzip.compress(toy_flows(9)))
    assert found("toy:7") == [("10.0.0.7", 7)]
    assert found(flows) == [("10.0.0.8", 5)]
    assert found(packed) == [("10.0.0.8", 9)]
    assert found("toy:3", tmp_path, write(tmp_path / "c.pcap", talk("10.0.0.9", 4))) == [
        ("10.0.0.8", 9),
        ("10.0.0.9", 4),
        ("10.0.0.7", 3),
    ]


def test_a_pipe_is_recognised(stdin: Callable[[Any], None]) -> None:
    stdin(toy_flows(6))
    assert found("-") == [("10.0.0.8", 6)]


def test_a_file_is_read_again_and_a_folder_that_is_followed_has_it(tmp_path: Path) -> None:
    (tmp_path / "a.flows").write_bytes(toy_flows(5))
    (file,), (folder,) = open_inputs([tmp_path]), open_inputs([tmp_path], follow=True)
    for source in (file, file.again(), folder):
        assert source.first_time() == NOON
        assert sum(map(len, next(source.blocks()))) == source.counters.packets == 5
    assert file.identity() == f"{tmp_path}/a.flows@{NOON}"


def test_every_command_reads_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.flows").write_bytes(toy_flows(50))
    inputs = ["toy:40", tmp_path / "*.flows"]
    ended = run("scan", *inputs, "--json", "--detector", "exact", "--threshold", 1, "--inner", "10.0.0.0/8")
    assert (ended.status, [row["peers"] for row in ended.rows]) == (0, [50, 40])
    assert ended.err.splitlines()[-1].startswith("90 packets in ")
    ended = run("calibrate", *inputs, "--json", "-t", 16, "-m", "1MiB", "--inner", "10.0.0.0/8")
    assert (ended.status, ended.rows[0]["super_hosts"]) == (0, 2)
    spool, link = tmp_path / "spool", tmp_path / "link"
    ended = run("edge", "toy:x", "--site", "ams", "--memory", "1MiB", "--spool", spool, "--to", link)
    assert (ended.status, "toy:x: write the number of peers, like toy:7" in ended.err) == (2, True)
    ended = run("scan", "toy:x", "toy:9", "--json", "--detector", "exact", "--threshold", 1, "--inner", "10.0.0.0/8")
    assert (ended.status, [row["peers"] for row in ended.rows]) == (2, [])
    ended = run("batch", "toy:7", "--local-cluster", "--save", tmp_path / "s")
    assert (ended.status, ended.err) == (3, "superhosts: toy:7: is not a file; other inputs are for scan\n")
