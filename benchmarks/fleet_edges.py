"""The edges of benchmarks/fleet.py: generates the sketches of all sites beforehand, and sends them from one process."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cases import THETA, Column, update_in_batches
from superhosts.core.pairs import Part, Window
from superhosts.core.times import window_name
from superhosts.core.units import SECOND
from superhosts.detectors.cube import Cube
from superhosts.fleet.filelink import FileSender
from superhosts.fleet.names import SketchId
from superhosts.fleet.nats.credentials import NatsOptions
from superhosts.fleet.nats.send import NatsSender
from superhosts.fleet.spool import LinkSender, Spool
from superhosts.sketch.sketch import Sketch
from superhosts.sources.synthetic.traffic import Traffic, window_flows

CONTENTS = 10
LENGTH = 300  # seconds of a window
FLOWS_PER_SUPER_HOST = 8_333  # 600 super hosts in 5 M flows, as in the other benchmarks


@dataclass
class Truth:
    """The true answer: the peers of every super host in each content and in all, and the bits of the union."""

    flows: int = 0  # distinct flows of all contents
    supers: dict[int, int] = field(default_factory=dict)  # host → peers, for hosts with at least THETA
    contents: list[dict[int, int]] = field(default_factory=list)  # for each content: super host of the union → peers
    bits: Any = None
    labels: Any = None


class Fleet:
    """The sketches of all sites on disk. Runs use hard links to the files."""

    def __init__(self, folder: Path, counts: list[int], flows: int, windows: int, traffic: str) -> None:
        self.folder = folder
        self.sites = [f"site{number:03d}" for number in range(max(counts))]
        self._count = min(CONTENTS, *counts)  # Every run then has all contents, and the same union.
        self.flows = flows
        self.traffic = traffic
        self.truth = Truth()
        first = int(time.time()) // LENGTH - windows - 2
        spans = [Window((first + i) * LENGTH * SECOND, (first + i + 1) * LENGTH * SECOND) for i in range(windows + 1)]
        self.warming, self.windows = spans[0], spans[1:]

    def make(self) -> None:
        """Write the sketches of every site as an edge does."""
        count = self._count
        pairs: list[tuple[Column, Column]] = []
        for content, (hosts, peers) in enumerate(self._contents(count)):
            pairs.append((hosts, peers))
            cube = Cube(device="cpu")
            update_in_batches(cube, hosts, peers)
            self._add_bits(cube)
            for site in self.sites[content::count]:
                for window in self.windows:
                    self._put(cube, site, window, len(hosts))
            print(f"  generated content {content + 1} of {count}", flush=True)
        self._add_answer(pairs)
        small = Cube(device="cpu")
        update_in_batches(small, *window_flows(Traffic(flows=10_000, packets=10_000, super_hosts=2), 0))
        for site in self.sites:
            self._put(small, site, self.warming, 10_000)

    def _contents(self, count: int) -> Iterator[tuple[Column, Column]]:
        """Yield the hosts and peers of each content, which has `flows` flows."""
        if self.traffic == "own":
            for seed in range(count):
                yield window_flows(_traffic(self.flows, seed + 1), 0)
            return
        hosts, peers = window_flows(_traffic(3 * self.flows, 1), 0)
        rng = np.random.default_rng(1)
        for _ in range(count):
            seen = rng.permutation(len(hosts))[: self.flows]
            yield hosts[seen], peers[seen]

    def _put(self, cube: Cube, site: str, window: Window, pairs: int) -> None:
        sketch = Sketch(window=window, site=site)
        sketch.parts[Part()] = cube
        span = {"start": window.start, "end": window.end}
        sketch.entries = [{"site": site, **span, **Part()._asdict(), "pairs": pairs}]
        Spool(self._place(window) / site, site, cap=1 << 50, say=tell).put(sketch)

    def _add_bits(self, cube: Cube) -> None:
        """Add a cube to the true union with NumPy's OR and maximum, independently of the merge under test."""
        arrays, truth = cube.arrays(), self.truth
        if truth.bits is None:
            truth.bits, truth.labels = arrays["bits"].copy(), arrays["labels"].copy()
        else:
            np.bitwise_or(truth.bits, arrays["bits"], out=truth.bits)
            np.maximum(truth.labels, arrays["labels"], out=truth.labels)

    def _add_answer(self, pairs: list[tuple[Column, Column]]) -> None:
        distinct = np.unique(np.concatenate([hosts.astype(np.uint64) << 32 | peers for hosts, peers in pairs]))
        hosts, sizes = np.unique(distinct >> np.uint64(32), return_counts=True)
        large = sizes >= THETA
        self.truth.flows = len(distinct)
        self.truth.supers = dict(zip(hosts[large].tolist(), sizes[large].tolist(), strict=True))
        for own, _ in pairs:
            kept, sizes = np.unique(own[np.isin(own, hosts[large])], return_counts=True)
            self.truth.contents.append(dict(zip(kept.tolist(), sizes.tolist(), strict=True)))

    def _place(self, window: Window) -> Path:
        return self.folder / "made" / window_name(window)

    def files(self, window: Window, sites: int) -> list[Path]:
        """Return the sketches of the first `sites` sites."""
        return [path for site in self.sites[:sites] for path in (self._place(window) / site).glob("*.cube")]

    def mean_size(self) -> float:
        """Return the mean size of a sketch in bytes."""
        return float(np.mean([path.stat().st_size for path in self.files(self.windows[0], len(self.sites))]))

    def lend(self, folder: Path, windows: list[Window], sites: int) -> None:
        """Create hard links to the sketches in the spools of a run."""
        for window in windows:
            for path in self.files(window, sites):
                spool = folder / SketchId.parse(path.name).site
                spool.mkdir(parents=True, exist_ok=True)
                os.link(path, spool / path.name)

    def peers_at(self, site: str, host: int) -> int:
        """Return the true number of peers of a super host at a site."""
        return self.truth.contents[self.sites.index(site) % len(self.truth.contents)].get(host, 0)


def _traffic(flows: int, seed: int) -> Traffic:
    supers = max(2, flows // FLOWS_PER_SUPER_HOST)
    return Traffic(flows=flows, packets=flows, super_hosts=supers, seed=seed)


class Sent(NamedTuple):
    """The measurements of the senders' process."""

    start: float  # by the system clock, which also sets the times of files
    delivered: float  # by the system clock
    cpu: float  # seconds
    breaks: int  # connections that were lost or abandoned


def send(pipe: Any, folder: Path, way: Path | str, total: int) -> None:
    """Run the senders of all sites, one thread each, until the hub has sent all receipts."""
    spools = [Spool(path, path.name, cap=1 << 50, say=tell) for path in sorted(folder.iterdir())]
    senders: list[LinkSender] = [
        FileSender(way, spool.site, tell) if isinstance(way, Path) else NatsSender(NatsOptions(way), spool.site, tell)
        for spool in spools
    ]
    stop = threading.Event()
    threads = [
        threading.Thread(target=sender.run, args=(spool, stop)) for sender, spool in zip(senders, spools, strict=True)
    ]
    cpu, start = time.process_time(), time.time()
    for thread in threads:
        thread.start()
    while sum(spool.counters.delivered for spool in spools) < total:
        time.sleep(0.02)
    delivered = time.time()
    connects = [getattr(sender.counters, "connects", 1) for sender in senders]  # File senders have no connections.
    sent = Sent(start, delivered, time.process_time() - cpu, sum(connects) - len(senders))
    stop.set()
    for thread in threads:
        thread.join(20)
    pipe.send(sent)


@cache
def tell(text: str) -> None:
    """Print a message of a spool or sender. The cache suppresses repeats, as a hundred senders often say the same."""
    print(f"  {text}", file=sys.stderr, flush=True)
