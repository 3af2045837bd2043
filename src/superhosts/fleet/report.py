"""The report of a hub about one window: rows with the sites that saw each host, and the sites that took part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from superhosts.core.pairs import Window
from superhosts.core.profile import Durations
from superhosts.core.results import Selection
from superhosts.core.text import counted
from superhosts.errors import SuperhostsError
from superhosts.fleet.sightings import Sightings
from superhosts.output.base import Report
from superhosts.output.rows import Row, make_rows
from superhosts.sketch.evidence.patterns import judge_of
from superhosts.sketch.sketch import Sketch


class HubRows(Sequence[Row]):
    """A hub's rows of one window, each built when it is read."""

    def __init__(self, plain: list[Row], sightings: Sightings, missing: list[str], revision: int) -> None:
        self._plain, self._sightings, self._missing, self._revision = plain, sightings, missing, revision

    def __len__(self) -> int:
        return len(self._plain)

    def __getitem__(self, number: Any) -> Any:
        """Return a row, or a list of rows for a slice."""
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        plain = self._plain[number]
        sites = self._sightings.of(range(len(self))[number])
        return {**plain, "sites": sites, "missing": self._missing, "revision": self._revision}


@dataclass(frozen=True, kw_only=True)
class HubReport(Report):
    """What a hub reports about one window."""

    sites: list[str]
    missing: list[str]
    refused: dict[str, str]  # site → reason
    left_out: int = 0  # hosts with as many peers as asked for that are not in the rows
    least_listed: float = 1  # peers below which hosts cannot be listed
    has_evidence: bool = True  # False: the sketches carry none

    @property
    def attendance(self) -> str:
        """Which sites took part: "5 of 5 sites", "4 of 5 sites: missing fra"."""
        total = counted(len(self.sites) + len(self.missing), "site")
        text = f"{len(self.sites)} of {total}" + (f": missing {', '.join(self.missing)}" if self.missing else "")
        return text + "".join(f"; refused {site} ({reason})" for site, reason in self.refused.items())

    @property
    def warnings(self) -> Sequence[str]:
        """What `sites`, `missing` and `revision` do not tell: which sites were refused."""
        return [f"refused {site}: {reason}" for site, reason in self.refused.items()]


class Members(NamedTuple):
    """What a report is made of besides the union: who took part, and where the sites' own sketches are."""

    window: Window
    revision: int
    sites: list[str]
    missing: list[str]
    refused: dict[str, str]
    files: Mapping[str, list[Path]]  # of each site


class Reporter:
    """Makes reports of the hosts that are asked for now. `on_left_out` gets a site's sketch that cannot be asked."""

    def __init__(
        self,
        selection: Callable[[], Selection],
        key: bytes | str | None,
        on_left_out: Callable[[SuperhostsError], None],
    ) -> None:
        self._selection, self._key, self._on_left_out = selection, key, on_left_out
        self.restoring = Durations()
        self.on_union: Callable[[Sketch], None] | None = None  # told each union that is reported

    def make(
        self, sketch: Sketch, members: Members, before: Iterable[Any], *, trusted: bool = False
    ) -> tuple[HubReport, bool]:
        """Return the report of a union, and whether the rows of the last report (`before`) are valid.

        `trusted`: the checksums of the sites' sketches are verified.
        """
        if self.on_union is not None:
            self.on_union(sketch)
        with self.restoring.measured():
            found, left_out = self._selection().search(sketch)
        sightings = Sightings(found, sketch, self._key)
        valid = sightings.remember(before)
        for error in sightings.ask(members.files, trusted=trusted):
            self._on_left_out(error)
        rows = HubRows(
            make_rows(members.window, found, judge=judge_of(sketch.evidence)),
            sightings,
            members.missing,
            members.revision,
        )
        report = HubReport(
            rows=rows,
            left_out=left_out,
            least_listed=sketch.least_listed,
            has_evidence=sketch.evidence is not None,
            window=members.window,
            revision=members.revision,
            sites=members.sites,
            missing=members.missing,
            refused=members.refused,
        )
        return report, valid
