"""All that is known of hosts, for rows."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from superhosts.core.pairs import Network, without_port
from superhosts.errors import UsageError
from superhosts.output.names.inventory import Inventory
from superhosts.output.names.maxmind import MaxMind
from superhosts.output.names.reversedns import ReverseNames

Row = dict[str, Any]
GEO_COLUMNS: Final = ("asn", "as_name", "country")
NAME_COLUMNS: Final = ("label", "name", *GEO_COLUMNS)


@dataclass(frozen=True)
class NamingOptions:
    """Where names come from."""

    labels: Path | None = None
    geo: Sequence[Path] = ()
    names: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The fields that rows get."""
        names = (("label",) if self.labels else ()) + (("name",) if self.names else ())
        return names + (GEO_COLUMNS if self.geo else ())

    def __bool__(self) -> bool:
        return bool(self.labels or self.geo or self.names)


NO_NAMES = NamingOptions()


class Annotator:
    """Adds to rows what is known of their hosts. Fields that are not known are null."""

    def __init__(self, options: NamingOptions, warn: Callable[[str], None] = lambda _: None) -> None:
        """Open the files. Raise UsageError if one cannot be read."""
        self._options, self._warn = options, warn
        self._names = ReverseNames() if options.names else None
        self._inventory: Inventory | None = None
        self._geo: list[MaxMind] = []
        self.reload()

    def reload(self) -> None:
        """Read the files again. If one cannot be read (UsageError), all stay as they are."""
        inventory = Inventory(self._options.labels, self._warn) if self._options.labels else None
        geo = [MaxMind(path) for path in self._options.geo]
        self._inventory, self._geo = inventory, geo  # The old files close when nobody reads them any more.

    def annotated(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Return rows with more fields, each made when it is read."""
        if self._names is not None:
            self._names.expect([network for row in rows if (network := _network(row["host"])) is not None])
        return _AnnotatedRows(rows, self)

    def fields(self, host: Any) -> Row:
        """Return what is known of a host."""
        network = _network(host)
        found: Row = dict.fromkeys(self._options.columns)
        if network is None:
            return found
        if self._inventory is not None:
            found["label"] = self._inventory.label(network)
        if self._names is not None:
            found["name"] = self._names.name(network)
        for file in self._geo:
            found |= file.fields(network)
        return found


class _AnnotatedRows(Sequence[Row]):
    """Rows with what is known of their hosts. Those of a hub are many, and made one by one."""

    def __init__(self, rows: Sequence[Row], annotator: Annotator) -> None:
        self._rows, self._annotator = rows, annotator

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: Any) -> Any:
        """Return a row, or a list of rows for a slice."""
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        row = self._rows[number]
        return {**row, **self._annotator.fields(row["host"])}


def _network(host: Any) -> Network | None:
    """Return the address or prefix of a host; None if hosts are generic keys."""
    try:
        return ipaddress.ip_network(without_port(str(host)), strict=False)
    except (ValueError, UsageError):
        return None
