"""`superhosts.compare`: every detector over the same traffic, scored against the exact answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, NamedTuple

from superhosts.core import defaults
from superhosts.core.device import choose_device
from superhosts.core.hashing import DEFAULT_KEY
from superhosts.core.text import counted, setting
from superhosts.core.units import parse_count, parse_size
from superhosts.detectors.arguments import check_threshold
from superhosts.detectors.registry import DETECTORS
from superhosts.errors import InputError, UsageError
from superhosts.lab.experiment import (
    Contestant,
    Make,
    Mean,
    Panels,
    Row,
    averages,
    on_inputs,
    on_synthetic,
    why_nothing,
)
from superhosts.lab.lineup import ENTRANTS, Entrant
from superhosts.lab.own import Adapted, MakeOwn, load_class, name_of
from superhosts.lab.rivals import RIVALS
from superhosts.lab.rivals.base import Rival
from superhosts.pipeline.settings import Settings
from superhosts.sources.open import Name, open_inputs
from superhosts.sources.synthetic.source import make_traffic
from superhosts.sources.synthetic.traffic import Traffic
from superhosts.sources.tables.mapping import as_map
from superhosts.sources.tables.options import TableOptions

FAMILIES = (4,)  # most detectors take IPv4 hosts only


@dataclass
class Comparison:
    """The result: the scores of every detector in every window (`rows`), their means, and who was left out, and why."""

    threshold: float
    rows: list[Row] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)  # name → reason

    @property
    def means(self) -> list[Mean]:
        return averages(self.rows)

    def __iter__(self) -> Iterator[Mean]:
        return iter(self.means)

    def __getitem__(self, detector: str) -> Mean:
        return {mean.detector: mean for mean in self.means}[detector]

    def to_dict(self) -> list[dict[str, Any]]:
        """Return the rows as dictionaries: what pandas.DataFrame, polars.DataFrame and JSON take."""
        return [asdict(row) for row in self.rows]

    def __repr__(self) -> str:
        means = self.means
        windows = counted(means[0].windows if means else 0, "window")
        lines = [f"Comparison: {windows}, at least {counted(self.threshold, 'peer')}"]
        for mean in means:
            total = "no super hosts" if mean.ftr is None else f"total false rate {mean.ftr:.2%}"
            lines.append(f"  {mean.detector}: {total}, {mean.update_rate / 1e6:.1f} M pairs/s")
        return "\n".join(lines)


def synthetic_traffic(
    *,
    windows: str | int | None = None,
    flows: str | int | None = None,
    packets: str | int | None = None,
    super_hosts: str | int | None = None,
    seed: int = 1,
    quick: bool = False,
) -> Traffic:
    """Return the traffic of the paper's experiment, or with `quick` two small windows; arguments override either."""
    many = parse_count(flows if flows is not None else "500k" if quick else "5M")
    return make_traffic(
        flows=many,
        packets=2 * many if packets is None else packets,
        windows=windows if windows is not None else 2 if quick else 12,
        super_hosts=super_hosts if super_hosts is not None else 60 if quick else 600,
        seed=seed,
    )


def compare(
    inputs: Name | Sequence[Name] = (),
    *,
    detectors: Sequence[str | MakeOwn] = (),
    threshold: float = defaults.THRESHOLD,
    memory: str | int | None = None,
    device: str = "cpu",
    windows: str | int | None = None,
    flows: str | int | None = None,
    packets: str | int | None = None,
    super_hosts: str | int | None = None,
    seed: int = 1,
    quick: bool = False,
    inner: str | Sequence[str] = (),
    special: str = defaults.SPECIAL,
    window: str = defaults.WINDOW,
    map: str | Mapping[str, object] | None = None,
    format: str | None = None,
    time: str = "record",
) -> Comparison:
    """Run detectors over the same traffic and score them against the exact answer.

    `detectors` are names ("cube", "gse" …) or classes of your own: a class with `update(hosts, peers)` and
    `super_hosts(threshold)` suffices (`OwnDetector`). Without any, all that this package has take part. `memory` is
    that of each, and others are set for it and for the threshold; without it each is set as in its paper.

    Without inputs, synthetic traffic is made: `windows` of `flows`, `packets` and `super_hosts` each, from a `seed`.
    The default is the experiment of the paper (12 windows, 5 M flows), which takes minutes; with `quick`, two small
    windows. Of inputs, `inner`, `special` and `window` say which hosts are compared, in which windows; `map`, `format`
    and `time` are those of `scan`.

    >>> for mean in compare(quick=True, detectors=["cube", "gse"]):
    ...     print(mean.detector, mean.ftr)
    """
    names = [inputs] if isinstance(inputs, Name) else list(inputs)
    least = check_threshold(threshold)
    made = (
        None
        if names
        else synthetic_traffic(
            windows=windows, flows=flows, packets=packets, super_hosts=super_hosts, seed=seed, quick=quick
        )
    )
    result = Comparison(least)
    given = None if memory is None else parse_size(memory)
    shared = shared_settings(least, memory, device, made)
    makers = choose(detectors, shared, result.left_out.__setitem__)
    if made is not None:
        result.rows += [each.row for judged in on_synthetic(made, makers, least, given) for each in judged]
        return result
    settings = Settings(inner=inner, special=special, window=window, threshold=threshold, families=FAMILIES)
    panels = Panels(lambda _bits: makers, settings)
    run = panels.run(open_inputs(names, tables=TableOptions(format, as_map(map), time)))
    result.rows += [each.row for judged in on_inputs(run, panels, least, given) for each in judged]
    if not result.rows:
        raise InputError(
            f"nothing to compare: {why_nothing(run.counters)}", file=", ".join([str(name) for name in names])
        )
    return result


class SharedSettings(NamedTuple):
    threshold: float
    device: str
    memory: str | int | None = None  # of each; None: as its paper, or we, set it
    flows: int | None = None  # of a window, where they are known
    key: bytes | None = None  # None: that of the environment, else the public one


def _make(entrant: Entrant, shared: SharedSettings) -> Contestant:
    kind: Any = RIVALS.get(entrant.detector) or DETECTORS[entrant.detector]
    device = "cpu" if issubclass(kind, Rival) and not kind.runs_on_gpu else shared.device
    arguments: dict[str, Any] = {"key": shared.key, "device": device}
    if shared.memory is not None:
        arguments["memory"] = shared.memory
    if entrant.planned:
        arguments |= {"flows": shared.flows, "threshold": shared.threshold}
    made: Contestant = kind.for_scan(shared.threshold, **arguments, **entrant.arguments)
    return made


def choose(
    detectors: Iterable[str | MakeOwn], shared: SharedSettings, on_left_out: Callable[[str, str], None] | None = None
) -> dict[str, Make]:
    """Return functions that make detectors, by the names that tables show; no detector means all of `ENTRANTS`.

    A detector is a name of `ENTRANTS`, a class of one's own (`own.py`), or module:Class. One that these settings rule
    out is left out: `on_left_out` gets its name and the reason.
    """
    own: dict[str, MakeOwn] = {}
    wanted: list[str] = []
    for each in detectors:
        name = each if isinstance(each, str) else name_of(each)
        if name in wanted:
            continue
        wanted.append(name)
        if not isinstance(each, str):
            own[name] = each
        elif ":" in each:
            own[name] = load_class(each)
        elif each not in ENTRANTS:
            known = f"one of {', '.join(ENTRANTS)}, or a class of your own as module:Class"
            raise UsageError(f"{setting('detector', each)}: {known}")
    wanted = wanted or list(ENTRANTS)
    given = {"threshold": shared.threshold, "memory": None if shared.memory is None else parse_size(shared.memory)}
    makers: dict[str, Make] = {
        name: partial(Adapted, own[name], given) if name in own else partial(_make, ENTRANTS[name], shared)
        for name in wanted
    }
    for name in own:
        makers[name]()  # An error of one's own detector is no reason to leave it out.
    for name in wanted:
        reason = _reason(name, makers[name], shared, wanted)
        if reason and len(makers) == 1:
            raise UsageError(f"no detector can take part: {name}: {reason}")
        if reason:
            del makers[name]
            if on_left_out is not None:
                on_left_out(name, reason)
    return makers


def _reason(name: str, make: Make, shared: SharedSettings, wanted: list[str]) -> str | None:
    if name == "cube-dense" and "cube" in wanted and shared.device.startswith("cuda"):
        return "on a GPU it is the same as cube"  # which is dense from the first pair on there
    if shared.flows is None and name == "cube-planned":
        return "of unknown flows it is the same as cube-dense"
    try:
        make()
    except UsageError as error:
        return str(error)
    return None


def shared_settings(threshold: float, memory: str | int | None, device: str, traffic: Traffic | None) -> SharedSettings:
    return SharedSettings(
        threshold=threshold,
        device=choose_device(device),
        memory=memory,
        flows=None if traffic is None else traffic.flows,
        key=None if traffic is None else DEFAULT_KEY,  # the same traffic must give the same scores everywhere
    )
