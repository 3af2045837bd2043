"""Loads every loop that live traffic will need, and compiles those that are not on disk, before any traffic comes.

A live capture, or a port, loses packets while a loop is compiled, and an edge loses windows. So a run that receives
first rehearses: a little made-up traffic goes through everything that windows go through (both stages of a cube, the
end of a window, files, unions). Only then does it open what receives, and say that it is ready.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from superhosts.core.defaults import MEMORY
from superhosts.core.pairs import SYN, TCP, PacketBatch, Window, pack
from superhosts.detectors.cube import Cube
from superhosts.detectors.stream import Stream
from superhosts.jit.compilation import until_stopped
from superhosts.pipeline.builder import MakeDetector, WindowBuilder, WindowResult, report_of
from superhosts.pipeline.settings import Settings
from superhosts.pipeline.sliding import SlidingPanes
from superhosts.sketch.evidence.sample import compile_rest
from superhosts.sketch.files import estimate_in_file
from superhosts.sketch.sketch import Sketch
from superhosts.sources.base import Source

SMALL = "slices=1,arrays=4,columns=112,rows=1024,labels=2,share=8,giants=1"  # a cube of 64 KiB
FEW, MANY = 1500, 12_000  # packets: such a cube counts the pairs of the first exactly
WINDOWS = FEW, FEW, MANY, MANY, FEW  # in which exact and dense panes meet, in each order


@until_stopped()
def rehearse(
    settings: Settings,
    make_detector: MakeDetector | None = None,
    *,
    sources: Sequence[Source] = (),
    find: bool = True,
    saves: bool = False,
    merges: bool = False,
) -> None:
    """Use all loops of a run with these settings; whether it `saves` sketches, and also `merges` such files.

    It ends early if the program is to end and something has still to be compiled.
    """
    for source in sources:
        source.rehearse()
    if settings.evidence:
        for family in settings.families:
            compile_rest(family)
    list(_windows(settings, make_detector, [1], find))  # The packets may be outside of the monitored network.
    everywhere = replace(settings, inner=(), exclude=(), watch=("inner",))
    if make_detector is None and issubclass(settings.kind, Cube):
        everywhere = replace(everywhere, memory=MEMORY, geometry=SMALL, memory_total=None)
    elif make_detector is None and issubclass(settings.kind, Stream):
        everywhere = replace(everywhere, memory="64KiB", memory_total=None)
    results = list(_windows(everywhere, make_detector, WINDOWS, find))
    if settings.slides and find:
        builder = WindowBuilder(everywhere, make_detector)
        sliding = SlidingPanes(3, 1, builder.result, keeps_all=True)
        for result in results:
            for _ in sliding.add(result):
                sliding.peek(result)
    if saves:
        with tempfile.TemporaryDirectory(prefix="superhosts-") as folder:
            _keep(results, everywhere, Path(folder), merges=merges)


def _windows(
    settings: Settings, make_detector: MakeDetector | None, sizes: Sequence[int], find: bool
) -> Iterator[WindowResult]:
    builder = WindowBuilder(settings, make_detector, find=find, gathers=1)
    for number, size in enumerate(sizes):
        window = Window(number, number + 1)
        for batch in _packets(settings, size, number):
            if number % 2:  # Half of the windows are looked into on the way, so that tables of pairs have to grow.
                builder.update(number, batch.take(slice(size // 5)))
                builder.peek(number, window)
                batch = batch.take(slice(size // 5, None))
            builder.update(number, batch)
        report = report_of(result := builder.close(number, window))
        list(report.rows)
        yield result


def _packets(settings: Settings, size: int, number: int) -> Iterator[PacketBatch]:
    """Yield packets of one or two hosts with many peers and of others with few, which pass the filters of the settings.

    Rows of one host and rows of several are arrays of different types to numba.
    """
    peers, times = np.arange(size) + (1 << 20), np.full(size, number, np.int64)
    hosts = np.where(peers % 2, peers % 4 // 2 * (number % 2), peers % 97)
    protocol, port = min(settings.lens.protocols or {TCP}), min(settings.lens.ports or {80})
    for family in settings.families:
        details = np.full(size, pack(protocol, (port, port), SYN), np.uint64) if settings.wants.details else None
        if family == 4:
            src, dst = ((each + (1 << 24)).astype(np.uint32) for each in (hosts, peers))
        else:
            src, dst = (np.stack([each.astype(np.uint64) + np.uint64(1 << 61)] * 2, axis=1) for each in (hosts, peers))
        yield PacketBatch(family, src, dst, times, details=details)


def _keep(results: Sequence[WindowResult], settings: Settings, folder: Path, *, merges: bool) -> None:
    """Save sketches; merge the files, as a hub does and a run that is restarted within a window, and ask them."""
    whole = Sketch()
    for number, result in enumerate(results):
        path = folder / f"{number}.cube"
        result.sketch.save(path)
        if merges:
            whole.merge_file(path, key=settings.key)
            for hosts in (1, 3):
                asked = {part: detector.top(hosts) for part, detector in whole}
                estimate_in_file(path, asked, key=settings.key)
    if merges:
        settings.selection.search(whole)
        whole.save(folder / "union.cube")
