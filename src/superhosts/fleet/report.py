"""The report of a hub about one window: rows with the sites that saw each host, and the sites that took part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from superhosts.fleet.ledger import Issue
from superhosts.fleet.sightings import Sightings
from superhosts.reports.base import Report
from superhosts.reports.rows import Row
from superhosts.text import counted


class HubRows(Sequence[Row]):
    """A hub's rows of one window, each built when it is read."""

    def __init__(self, plain: list[Row], sightings: Sightings, issue: Issue) -> None:
        self._plain, self._sightings, self._issue = plain, sightings, issue

    def __len__(self) -> int:
        return len(self._plain)

    def __getitem__(self, number: Any) -> Any:
        """Return a row, or a list of rows for a slice."""
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        plain = self._plain[number]
        sites = self._sightings.of(range(len(self))[number])
        return {**plain, "sites": sites, "missing": self._issue.missing, "revision": self._issue.revision}


@dataclass(frozen=True, kw_only=True)
class HubReport(Report):
    """What a hub reports about one window."""

    sites: list[str]
    missing: list[str]
    refused: dict[str, str]  # site → reason
    left_out: int = 0  # hosts with as many peers as asked for that are not in the rows

    @property
    def attendance(self) -> str:
        """Which sites took part: "5 of 5 sites", "4 of 5 sites: missing fra"."""
        total = counted(len(self.sites) + len(self.missing), "site")
        text = f"{len(self.sites)} of {total}" + (f": missing {', '.join(self.missing)}" if self.missing else "")
        return text + "".join(f"; refused {site} ({reason})" for site, reason in self.refused.items())
