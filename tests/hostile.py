"""A hostile site with a valid key, which sends malicious data over NATS or into the folder of a link."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import forging
from chaos import Fleet, put
from forging import take_apart
from processes import DEADLINE
from superhosts.core.pairs import Window
from superhosts.cubefile.container import VERSION
from superhosts.fleet.names import SketchId, parse_window_name
from superhosts.fleet.nats.messages import CHUNK, STREAM, Chunk

EVIL = "evil"
MANY = 400_000  # empty objects in a header: more than the 1 MiB that a site may send
FLOOD = 3000  # tiny messages sent at once
Header = dict[str, Any]


def forge(source: Path, change: Callable[[Header], None]) -> tuple[str, bytes]:
    """Return the sketch's name and the bytes of a sketch with a changed header and a valid checksum."""
    header, blocks = take_apart(source)
    header["sites"] = [EVIL]
    for entry in header["counters"]:
        entry["site"] = EVIL
    window = Window(*header["window"])
    change(header)
    forged = forging.forge(source.with_name("forged.tmp"), header, blocks, VERSION)
    return SketchId.of(forged, EVIL, window).name, forged.read_bytes()


def _float_bits(header: Header) -> None:
    header["parts"][0]["geometry"]["key_bits"] = 32.0


def _unknown_side(header: Header) -> None:
    header["parts"][0]["side"] = ["inner"]


def _reversed_window(header: Header) -> None:
    header["window"] = header["window"][::-1]


def _others_site(header: Header) -> None:
    header["sites"] = ["ams"]
    for entry in header["counters"]:
        entry["site"] = "ams"


def _no_counters(header: Header) -> None:
    header["counters"] = [5, None, []]


def _long_name(header: Header) -> None:
    header["sites"] = ["\x1b[2Jx\n" * 20_000]


def _many_objects(header: Header) -> None:
    header["x"] = [{}] * MANY


FORGERIES = [_float_bits, _unknown_side, _reversed_window, _others_site, _no_counters, _long_name, _many_objects]


def forgeries(fleet: Fleet, chance: random.Random) -> Iterator[tuple[str, bytes]]:
    """Yield sketches that must not be merged, for windows that the honest sites are sending."""
    for change in FORGERIES:
        source = chance.choice(fleet.sketch_files["ams"][: fleet.ended + 1])
        yield forge(source, change)
    name, data = forge(fleet.sketch_files["ams"][0], lambda header: None)
    yield name, data[: len(data) // 2]
    yield name.replace(name[-21:-5], "0123456789abcdef"), chance.randbytes(5000)


# Over NATS


@contextmanager
def speak_evil(fleet: Fleet, chance: random.Random) -> Iterator[None]:
    """Send forged sketches, incomplete ones, garbage, and messages of other sites, while the honest sites work."""
    thread = threading.Thread(target=lambda: asyncio.run(_attack(fleet, chance)), name=EVIL)
    sketch_files = fleet.sketch_files  # created in this thread, before the others start
    assert sketch_files
    thread.start()
    yield
    thread.join(DEADLINE)
    assert not thread.is_alive()


async def _attack(fleet: Fleet, chance: random.Random) -> None:
    import nats
    import nats.errors

    async def silent(error: Exception) -> None:
        pass

    others = [_send_beginnings, _send_garbage, _flood, _speak_for_others]
    # Forgeries come first, because incomplete sketches use up the site's quota.
    for attack in (_send_forgeries, *chance.sample(others, len(others))):
        client = nats.NATS()
        try:
            seed = str(fleet.folder / "hub" / "broker" / "seeds" / f"{EVIL}.nk")
            await client.connect(fleet.url, nkeys_seed=seed, allow_reconnect=False, error_cb=silent)
            await attack(client, fleet, chance)
            await client.flush(10)
        except (nats.errors.Error, OSError, TimeoutError):
            continue  # The server has disconnected the site, as it should.
        finally:
            with contextlib.suppress(Exception):
                await client.close()


async def _send_whole(client: Any, name: str, data: bytes) -> None:
    step = min(CHUNK, len(data))
    for number in range(-(-len(data) // step)):
        chunk = Chunk(name, number, step, len(data))
        piece = data[number * step : (number + 1) * step]
        await client.publish(f"superhosts.from.{EVIL}.chunk", piece, headers=chunk.headers("0"))


async def _send_forgeries(client: Any, fleet: Fleet, chance: random.Random) -> None:
    for name, data in forgeries(fleet, chance):
        await _send_whole(client, name, data)
        await client.flush(10)


async def _send_beginnings(client: Any, fleet: Fleet, chance: random.Random) -> None:
    """Send the first pieces of sketches that are never completed."""
    window = SketchId.parse(fleet.sketch_files["ams"][0].name).window
    for _ in range(100):
        name = SketchId(EVIL, window, f"{chance.getrandbits(64):016x}").name
        chunk = Chunk(name, 0, 4096, 100 * 4096)
        await client.publish(f"superhosts.from.{EVIL}.chunk", chance.randbytes(4096), headers=chunk.headers("0"))


async def _send_garbage(client: Any, fleet: Fleet, chance: random.Random) -> None:
    words = {"Superhosts-Name": "../../etc/passwd", "Superhosts-Chunk": "0 -1 99999999999999999999"}
    for number in range(100):
        headers = words if number % 3 == 0 else {"x": "\x1b[2J"} if number % 3 == 1 else None
        await client.publish(f"superhosts.from.{EVIL}.chunk", chance.randbytes(1000), headers=headers)
        await client.publish(f"superhosts.from.{EVIL}.ask", b"[" * 5000, reply=f"_INBOX.{EVIL}.x")
        await client.publish(f"superhosts.from.{EVIL}.ask", json.dumps(["x" * 100] * 500).encode())


async def _flood(client: Any, fleet: Fleet, chance: random.Random) -> None:
    for _ in range(FLOOD):
        await client.publish(f"superhosts.from.{EVIL}.chunk", b"x")


async def _speak_for_others(client: Any, fleet: Fleet, chance: random.Random) -> None:
    """Publish to subjects and replies of other sites, and to the queue itself."""
    name, data = forge(fleet.sketch_files["ams"][0], _others_site)
    mine, headers = f"superhosts.from.{EVIL}.chunk", Chunk(name, 0, len(data), len(data)).headers("1")
    honest = fleet.sketch_files["ams"][fleet.ended].name
    lie = json.dumps({"name": honest, "verdict": "merged", "reason": ""}).encode()
    attempts: list[Callable[[], Awaitable[Any]]] = [
        lambda: client.publish(mine, data, reply="superhosts.to.ams", headers=headers),
        lambda: client.publish("superhosts.from.ams.chunk", data, headers=headers),
        lambda: client.publish("superhosts.to.ams", lie),
        lambda: client.publish("_INBOX.ams.x", lie),
        lambda: client.publish(f"$JS.API.STREAM.PURGE.{STREAM}", b""),
        lambda: client.publish(mine, b"", reply=f"$JS.API.STREAM.PURGE.{STREAM}"),
        lambda: client.publish(f"$JS.API.STREAM.DELETE.{STREAM}", b""),
        lambda: client.subscribe("superhosts.>"),
    ]
    for attempt in attempts:
        await attempt()
        await client.flush(10)


# Over files


@contextmanager
def put_evil(fleet: Fleet, chance: random.Random) -> Iterator[None]:
    """Put forged sketches and things other than files into the site's folder of the link."""
    folder = fleet.folder / "link" / EVIL
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in forgeries(fleet, chance):
        (folder / ".forged.tmp").write_bytes(data)
        (folder / ".forged.tmp").replace(folder / name)
    key = SketchId.parse(fleet.sketch_files["ams"][0].name).window_name
    assert parse_window_name(key)
    names = iter([f"{key}-{EVIL}-{chance.getrandbits(64):016x}.cube" for _ in range(4)])
    os.mkfifo(folder / next(names))
    (folder / next(names) / "inside").mkdir(parents=True)
    (folder / next(names)).symlink_to("/dev/zero")
    with (folder / next(names)).open("wb") as sparse:
        sparse.truncate(64 << 20)
    yield
    put(fleet.sketch_files["ams"][0], folder)  # A sketch of another site, in this site's folder.
    (fleet.folder / "link" / f"{chance.getrandbits(32)}\n").write_text("a file among the sites")
