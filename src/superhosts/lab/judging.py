"""`superhosts.calibrate`: the cube against the exact answer on the user's own traffic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from superhosts.core import defaults
from superhosts.core.units import parse_share, parse_size
from superhosts.errors import InputError
from superhosts.lab.calibration import Calibration, cubes_around, thresholds_below
from superhosts.lab.calibration import calibrate as judge
from superhosts.lab.experiment import why_nothing
from superhosts.lab.panel import Panels
from superhosts.pipeline.scan import RunOptions, Scan
from superhosts.pipeline.settings import Settings
from superhosts.sources.open import Name, open_inputs
from superhosts.sources.tables.mapping import as_map
from superhosts.sources.tables.options import TableOptions


def calibrate(
    inputs: Name | Sequence[Name],
    *,
    threshold: float = defaults.THRESHOLD,
    memory: str | int = defaults.MEMORY,
    error: str | float = "1%",
    inner: str | Sequence[str] = (),
    exclude: str | Sequence[str] = (),
    watch: str | Sequence[str] = "inner",
    direction: str | Sequence[str] = "any",
    special: str = defaults.SPECIAL,
    window: str = defaults.WINDOW,
    exact: bool | Literal["on", "off"] | None = None,
    ipv4_prefix: int = defaults.IPV4_PREFIX,
    ipv6_prefix: int = defaults.IPV6_PREFIX,
    key: bytes | str | None = None,
    device: str = "auto",
    map: str | Mapping[str, object] | None = None,
    format: str | None = None,
    time: str = "record",
) -> Calibration:
    """Compare the cube with the exact answer on your own traffic, and say how much memory it needs.

    Cubes with more and with less than `memory` are tried, too. `error` is the share of super hosts that may be wrong.
    They count exactly while the pairs of a window fit; saved windows and hubs estimate, so calibrate for these with
    exact=False. The exact answer keeps every pair of a window in memory: of very long captures, take a part. The other
    arguments are those of `scan`.

    >>> print(calibrate("trace.pcap", inner="10.0.0.0/8").advice())
    """
    names = [inputs] if isinstance(inputs, Name) else list(inputs)
    share = parse_share(error)
    settings = Settings(
        inner=_several(inner),
        exclude=_several(exclude),
        watch=_several(watch),
        direction=_several(direction),
        special=special,
        window=window,
        threshold=threshold,
        memory=memory,
        exact=exact,
        ipv4_prefix=ipv4_prefix,
        ipv6_prefix=ipv6_prefix,
        key=key,
        device=device,
    )
    given = {} if exact is None else {"exact": exact}
    panels = Panels(cubes_around(parse_size(memory), key=key, device=device, **given), settings)
    sources = open_inputs(names, tables=TableOptions(format, as_map(map), time))
    run = Scan(sources, settings, RunOptions(find=False), make_detector=panels.make)
    result = judge(run, panels, error=share, thresholds=thresholds_below(threshold))
    if not result.windows:
        raise InputError(
            f"nothing to judge: {why_nothing(run.counters)}", file=", ".join([str(name) for name in names])
        )
    return result


def _several(values: str | Sequence[str]) -> Sequence[str]:
    return (values,) if isinstance(values, str) else values
