"""The hosts that a caller asks about, as a column: any column that `update` takes, a result, or one host."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np

from superhosts.core.columns.readers import ColumnData
from superhosts.core.pairs import Addresses, Host, HostFormat, HostKeys
from superhosts.core.results import SuperHosts
from superhosts.core.textkeys import TextFormat
from superhosts.detectors.arguments import as_hosts
from superhosts.detectors.generickeys import read_integers, read_names
from superhosts.errors import UsageError

Hosts = SuperHosts | HostKeys | ColumnData


def named_column(hosts: Hosts, format: HostFormat) -> tuple[Addresses, Sequence[str | None]]:
    """Return hosts as an array of integers of this format, and their names if the caller gave some."""
    if isinstance(format, TextFormat) and not isinstance(hosts, SuperHosts | HostKeys):
        return read_names(hosts, format)
    return host_column(hosts, format), ()


def is_one_host(host: Any) -> bool:
    """Return True if a question is about one host, not a column of them."""
    return isinstance(host, str | bytes | Real | Host | None) or (isinstance(host, np.ndarray) and host.ndim == 0)


def host_column(hosts: Hosts, format: HostFormat) -> Addresses:
    """Return hosts as an array of integers of this format."""
    if isinstance(hosts, SuperHosts):
        if hosts.format != format:
            raise UsageError(f"hosts are {hosts.format.words}, but those of the sketch are {format.words}")
        return hosts.hosts
    if isinstance(hosts, HostKeys):
        return hosts.column
    if format.keys == "int64":
        return read_integers(hosts)
    return as_hosts(hosts, format)
