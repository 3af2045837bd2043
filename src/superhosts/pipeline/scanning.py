"""`superhosts.scan`: a run over inputs for callers in Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from superhosts.core import defaults
from superhosts.detectors.base import Detector
from superhosts.errors import UsageError
from superhosts.pipeline.run_options import scan_options
from superhosts.pipeline.scan import Scan
from superhosts.pipeline.settings import Settings
from superhosts.sources.opening import open_inputs
from superhosts.sources.tables.mapping import as_map
from superhosts.sources.tables.options import TableOptions

Name = str | Path


def scan(
    inputs: Name | Sequence[Name],
    *,
    inner: str | Sequence[str] = (),
    exclude: str | Sequence[str] = (),
    watch: str | Sequence[str] = "inner",
    direction: str | Sequence[str] = "any",
    threshold: float | None = None,
    top: int | None = None,
    window: str | None = None,
    slide: str = "",
    detector: str | type[Detector] = "cube",
    memory: str | int = defaults.MEMORY,
    geometry: str = "",
    exact: bool | Literal["on", "off"] | None = None,
    memory_total: str | int | None = None,
    special: str = defaults.SPECIAL,
    ipv4_prefix: int = defaults.IPV4_PREFIX,
    ipv6_prefix: int = defaults.IPV6_PREFIX,
    key: bytes | str | None = None,
    site: str = "",
    device: str = "auto",
    threads: int | None = None,
    peers: str | Sequence[str] = (),
    count: str = "hosts",
    by: str = "address",
    proto: str | Sequence[str] = (),
    port: str | int | Sequence[str | int] = (),
    tunnels: str = "outer",
    evidence: bool = False,
    evidence_pairs: int = defaults.EVIDENCE_PAIRS,
    families: Sequence[int] = (4, 6),
    map: str | Mapping[str, object] | None = None,
    format: str | None = None,
    time: str = "record",
    keep_sketch: bool = False,
) -> Scan:
    """Scan inputs; iterate over the result for the windows, each of which is a result with its super hosts.

    An input is a file, a folder, a pattern, a URL, "-" (standard input), netflow://… or synth:… (`sources/opening.py`).

    Which hosts:

    - `inner`: the prefixes of the monitored network ("10.0.0.0/8", "private", "@FILE"); without it every address is.
    - `exclude`: prefixes whose packets do not count. `special`: "drop" multicast, broadcast and unspecified hosts, or
      "keep" them.
    - `watch`: "inner" hosts, "outer" ones or both. `direction`: peers in "any" direction, "in", "out" or several.
    - `threshold`: hosts with at least this many peers. `top`: this many hosts with the most peers. Without both, the
      ten hosts with the most peers, and all with 1024 or more.
    - `peers`: "any" that the host exchanges packets with (the default), those to whom it "opened" a conversation, and
      of these the ones that "answered" or left it "unanswered"; or several. direction="in": those who opened to it.
    - `count`: distinct "hosts", destination "ports", or "host-ports" (both together). Ports are those that the host
      opened, unless `peers` says otherwise. `by`: a host is an "address" (or prefix), or an "address-port": an address
      with the destination port.
    - `proto`, `port`: only packets of these protocols, or with one of these ports at either end.
    - `tunnels`: which IP header of a tunnelled packet counts, the "outer" one, the "inner" one or "both".
    - `evidence`: keep a sample of who talked to whom, at most `evidence_pairs` of each address family. Then
      `window.verdict(row)` says what a host's peers look like: its pattern, the reason and a summary.
    - `ipv4_prefix`, `ipv6_prefix`: networks of this length are hosts. `families`: address families that count.

    How:

    - `window`: a length like "5m", or "all" for one window. Without it, inputs that end and are together shorter than 5
      minutes are one window; others have windows of 5 minutes. `slide`: windows overlap, and each begins this much
      after the one before ("30s"; the window is a multiple of it).
    - `detector`, `memory` (or a `geometry` that `plan` gives), `exact`: count exactly while the pairs of a window fit
      (True, False, or None as the device decides). `memory_total`: the most memory that a scan may need.
    - `key`: the secret. `site`: a name that sketches carry. `device`: "auto", "cpu", "cuda". `threads`: how many.
    - `map`, `format`, `time`: of tables and logs, the names of columns ("src=a,dst=b,time=c", or a dictionary) where
      they are unusual, the format where it is not recognised, and the time of a record that counts, its "start" or
      "end", of flow exports also "export" or "received" ("record": the start, or received where exports are live).
      Rows without a time need window="all".

    A window's sketch (`window.sketch`) is freed when the next window comes, unless `keep_sketch`. Another loop over the
    same scan reads the inputs again; of a pipe or standard input that is an error. A window of files far out of order
    may come a second time, in the end, as `revision` 2: that is the whole of it.

    >>> for window in scan("trace.pcap", inner="10.0.0.0/8", threshold=1024, window="5m"):
    ...     for row in window:
    ...         print(row.host, row.peers)
    """
    names = _names(inputs)
    settings = Settings(
        inner=_several(inner),
        exclude=_several(exclude),
        watch=_several(watch),
        direction=_several(direction),
        threshold=threshold,
        top=top,
        window=defaults.WINDOW if window is None else window,
        slide=slide,
        detector=detector,
        memory=memory,
        geometry=geometry,
        exact=exact,
        memory_total=memory_total,
        special=special,
        ipv4_prefix=ipv4_prefix,
        ipv6_prefix=ipv6_prefix,
        key=key,
        site=site,
        device=device,
        threads=threads,
        peers=_several(peers),
        count=count,
        by=by,
        proto=_several(proto),
        port=[str(each) for each in ((port,) if isinstance(port, str | int) else port)],
        tunnels=tunnels,
        evidence=evidence,
        evidence_pairs=evidence_pairs,
        families=families,
    )
    reopen = partial(open_inputs, names, tables=TableOptions(format, as_map(map), time))
    sources = reopen()
    options = scan_options(sources, settings, joins_short=window is None and not slide, keeps_sketches=keep_sketch)
    return Scan(sources, settings, options, reopen=reopen)


def _names(inputs: Any) -> list[Name]:
    """Return the names of inputs; raise UsageError for tables, open files and whatever else is no name."""
    is_several = isinstance(inputs, Iterable) and not isinstance(inputs, Name | bytes | Mapping)
    # A data frame would yield the names of its columns.
    has_names = is_several and not any(hasattr(inputs, each) for each in ("columns", "__arrow_c_stream__", "read"))
    names = list(inputs) if has_names else [inputs]
    if not names:
        raise UsageError("scan: there is no input; pass at least one file, folder, pattern or URL")
    for name in names:
        if not isinstance(name, Name):
            way = "pass names of files; a table goes to cube.update(table, host=…, peer=…)"
            raise UsageError(f"scan: {type(name).__name__} is not the name of an input; {way}")
    return names


def _several(values: str | Sequence[str]) -> Sequence[str]:
    return (values,) if isinstance(values, str) else values
