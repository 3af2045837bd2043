"""Measure a hub's memory while very many sketches arrive at once: `python benchmarks/fleet_pieces.py [--sites 10 300]`.

The pieces of all sites' sketches are interleaved: the first piece of every sketch, then the second of every sketch, and
so on, so that all of them are incomplete until the last round. One client sends them to a real `superhosts hub` with
its embedded broker. The sketches are those of benchmarks/fleet.py, and the union is compared bit by bit as there. A
first run, which is discarded, compiles.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import nats
import nats.js.errors

from cases import warm_up
from fleet import Usage, check, rehearse, running_hub
from fleet_edges import Fleet
from harness import HERE, Report
from superhosts.fleet.names import site_of
from superhosts.fleet.nats.messages import Chunk
from superhosts.fleet.nats.send import BUSY, NO_ROOM

IN_FLIGHT = 64  # pieces that the server has yet to confirm


def main() -> None:
    """Generate the sketches, send them interleaved, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sites", type=int, nargs="+", default=[10, 300], metavar="N", help="numbers of sites")
    parser.add_argument("--flows", type=int, default=1_000_000, metavar="N", help="flows of a site's window")
    parser.add_argument(
        "--step", type=int, default=64 << 10, metavar="BYTES", help="size of a piece (an edge's: 512 KiB)"
    )
    parser.add_argument("--results", type=Path, default=HERE / "results", help="folder of the Markdown file")
    options = parser.parse_args()
    report = Report(quick=False)
    warm_up()
    with TemporaryDirectory(prefix="superhosts-fleet-") as name:
        fleet = Fleet(Path(name), sorted(options.sites), options.flows, 1, "shared")
        fleet.make()
        rehearse(fleet, min(options.sites))
        for count in sorted(options.sites):
            measure(report, fleet, count, options.step)
    print("\n" + report.table())
    name = f"fleet-pieces-{report.place}"
    for path in report.write(options.results, name, title="A hub and interleaved pieces of many sites"):
        print(path)


def measure(report: Report, fleet: Fleet, count: int, step: int) -> None:
    """Send one window of so many sites."""
    label = f"{count} sites, interleaved"
    (window,) = fleet.windows
    with (
        TemporaryDirectory(dir=fleet.folder) as name,
        running_hub(Path(name), fleet.folder / "compiled", "NATS", fleet.sites[:count]) as hub,
    ):
        for each in (fleet.warming, window):
            before, skip = Usage.of(hub.process.pid), hub.output.stat().st_size if hub.output.exists() else 0
            files = fleet.files(each, count)
            asyncio.run(send(str(hub.way), files, step))
            hub.wait(lambda each=each: hub.has_reported(each), "the report")
        after, broker = Usage.of(hub.process.pid), Usage.of(hub.broker or 0)
        total = sum(path.stat().st_size for path in files)
        pieces = sum(-(-path.stat().st_size // step) for path in files)
        note = f"{total / 1e6:,.0f} MB in {pieces:,} pieces of {step >> 10} KiB; {before.peak:.0f} MiB before"
        report.add("fleet", f"{label}: largest memory, hub", after.peak, "MiB", note=note)
        report.add("fleet", f"{label}: largest memory, broker", broker.peak, "MiB")
        report.add("fleet", f"{label}: processor, hub", after.cpu - before.cpu, "s a window")
        check(report, label, fleet, hub, skip, count)


async def send(url: str, files: list[Path], step: int) -> None:
    """Publish the pieces of all files, round by round."""
    async with await nats.connect(url) as client:
        jetstream, free = client.jetstream(timeout=60), asyncio.Semaphore(IN_FLIGHT)

        async def publish(path: Path, chunk: Chunk) -> None:
            with path.open("rb") as file:
                file.seek(chunk.number * chunk.step)
                data = file.read(chunk.step)
            while True:
                try:
                    subject = f"superhosts.from.{site_of(path.name)}.chunk"
                    await jetstream.publish(subject, data, headers=chunk.headers("0"))
                    break
                except nats.js.errors.APIError as error:
                    if error.err_code not in (*NO_ROOM, BUSY):
                        raise
                    await asyncio.sleep(0.1)
            free.release()

        async with asyncio.TaskGroup() as tasks:
            for path, chunk in interleaved(files, step):
                await free.acquire()
                tasks.create_task(publish(path, chunk))


def interleaved(files: list[Path], step: int) -> Iterator[tuple[Path, Chunk]]:
    """Yield the first piece of every file, then the second of every file, and so on."""
    chunks = []
    for path in files:
        size = path.stat().st_size
        whole = Chunk(path.name, 0, min(step, size), size)
        chunks.append([(path, whole._replace(number=number)) for number in range(whole.pieces)])
    for round in itertools.zip_longest(*chunks):
        yield from (each for each in round if each is not None)


if __name__ == "__main__":
    main()
