"""Questions to sketches that lie in files, read block by block: memory follows the hosts asked for, not the sketch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from superhosts.cubefile.container import CubeReader, Take
from superhosts.cubefile.parts import array_name
from superhosts.detectors.base import Hosts, StoredHosts, host_column
from superhosts.detectors.registry import DETECTORS
from superhosts.device import thread_count
from superhosts.hashing import secret_of
from superhosts.pairs import Host, Part
from superhosts.results import Found, SuperHosts
from superhosts.sketches.bundle import load
from superhosts.sketches.header import Stored, check_hosts, describe, memory_limit


def estimate_in_file(
    path: str | Path, hosts: Mapping[Part, Hosts], *, key: bytes | str | None = None, trusted: bool = False
) -> dict[Part, SuperHosts]:
    """Return the numbers of peers of given hosts in a stored sketch, in the order asked; parts it lacks are left out.

    The numbers are those that `load(path).parts[part].estimate(host)` gives for each. Hosts come as a column, as a
    result, or as addresses. `trusted`: the file's checksum was checked a moment ago, and is not computed again.
    """
    secret = secret_of(key)
    with CubeReader(path, trusted=trusted) as reader:
        stored = describe(reader, memory_limit(None))
        return _ask(reader, stored, hosts, secret)


def find_in_file(
    path: str | Path, host: str | Host, *, key: bytes | str | None = None, max_memory: str | int | None = None
) -> list[Found]:
    """Return one host's number of peers in every part of its address family, as `load(path).estimate(host)` would."""
    family = 6 if ":" in str(host) else 4
    with CubeReader(path) as reader:
        stored = describe(reader, memory_limit(max_memory))
        asked: dict[Part, Hosts] = {part: [host] for part in stored.kinds if part.family == family}
        answers = _ask(reader, stored, asked, secret_of(key))
    return [Found(part, next(iter(rows)), stored.kinds[part].detector) for part, rows in answers.items()]


def _ask(reader: CubeReader, stored: Stored, hosts: Mapping[Part, Hosts], secret: bytes) -> dict[Part, SuperHosts]:
    stored.check_key(secret)
    check_hosts(reader, stored, secret)
    columns = {part: host_column(hosts[part], kind.format) for part, kind in stored.kinds.items() if part in hosts}
    asked: dict[Part, StoredHosts] = {}
    takers: dict[str, Take] = {}
    for number, (part, kind) in enumerate(stored.kinds.items()):
        if part in columns:
            some = DETECTORS[kind.detector].stored_hosts(kind, secret, columns[part])
            if some is None:  # the sketch is loaded as a whole
                sketch = load(reader.name, key=secret)
                return {part: sketch.parts[part].estimate_many(column) for part, column in columns.items()}
            asked[part] = some
            takers.update({array_name(number, name): take for name, take in some.takers.items()})
    reader.each_block(takers, thread_count())
    return {part: some.answer() for part, some in asked.items()}
