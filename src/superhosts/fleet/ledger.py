"""What a hub knows about one window: the sites in it, and what was reported. Stored as JSON, validated on load."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from superhosts.errors import UsageError
from superhosts.fleet.parcels import Parcel, check_site

UNKNOWN = 0  # the revision of a report whose number is lost
LATEST = 1e12  # seconds since 1970, later than any clock shows
MAX_REVISIONS = 1 << 53  # JSON readers may round larger numbers


@dataclass
class Issue:
    """One report of a window: the sketches in it, and the sites that are missing."""

    revision: int = 1
    members: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    @classmethod
    def parse(cls, content: Any, window: str) -> Issue | None:
        """Validate a stored report; None if there was none. Raises ValueError if it is invalid."""
        if content is None:
            return None
        found = _fields(content, "a report")
        revision = found.get("revision", 1)
        if type(revision) is not int or not UNKNOWN <= revision < MAX_REVISIONS:
            raise ValueError("revision is not a number of reports")
        return cls(revision, _members(found, "members", window), _sites(found, "missing"))


@dataclass
class Ledger:
    """What a hub knows about one window. Times are in seconds since 1970, by this machine's clock."""

    first: float = 0.0  # when the first sketch arrived
    # When the first sketch arrived that is in no report, or the last report was made if that is later, or the window
    # was restored from the archive.
    unreported: float = 0.0
    known: list[str] = field(default_factory=list)  # all sketches ever accepted
    merged: list[str] = field(default_factory=list)  # sketches in the union on disk
    issued: Issue | None = None  # the last report that all destinations have
    issuing: Issue | None = None  # a report in progress: after a crash the same report is made again
    held: list[str] = field(default_factory=list)  # sites in the union whose sketch names are lost

    @classmethod
    def parse(cls, content: Any, window: str) -> Ledger:
        """Validate a stored ledger, written by this release or a newer one. Raises ValueError if it is invalid."""
        found = _fields(content, "a ledger")
        return cls(
            _time(found, "first"),
            _time(found, "unreported"),
            _members(found, "known", window),
            _members(found, "merged", window),
            Issue.parse(found.get("issued"), window),
            Issue.parse(found.get("issuing"), window),
            _sites(found, "held"),
        )

    @property
    def is_due(self) -> bool:
        """Return True if the window has something that was not reported."""
        return self.issuing is not None or set(self.known) != set(self.issued.members if self.issued else ())

    @property
    def sites_to_report(self) -> set[str]:
        """The sites whose sketches are in no report yet."""
        reported = set(self.issued.members if self.issued else ())
        return {Parcel.parse(name).site for name in list(self.known) if name not in reported}

    @property
    def names_lost(self) -> bool:
        """Return True if the window was reported, and the list of sketches in that report is lost."""
        return self.issued is not None and not self.issued.members

    @property
    def next_revision(self) -> int:
        """The number of the next report, always higher than all before."""
        return revision_after(self.issued.revision if self.issued else None)

    def adopt(self, issue: Issue, sites: Iterable[str] = ()) -> None:
        """Add what another source knows about the last report; `sites` are the sites in the union."""
        self.known += [name for name in issue.members if name not in self.known]
        own = self.issued or Issue(UNKNOWN)
        if issue.revision > own.revision or not own.members:
            self.issued = Issue(max(issue.revision, own.revision), list(issue.members), list(issue.missing))
        self.held = sorted({*self.held, *filter(_is_site, sites)})  # a site that is also in `known` does no harm here

    @property
    def sites(self) -> set[str]:
        """The sites in the window."""
        return {Parcel.parse(name).site for name in list(self.known)} | set(self.held)


def revision_after(last: int | None) -> int:
    """Return the number of the report after report `last`; None: there was none.

    If the last number is lost, this is the time in seconds: no window has had a report every second.
    """
    if last is None:
        return 1
    return last + 1 if last != UNKNOWN else max(2, int(time.time()))


def _is_site(name: str) -> bool:
    try:
        return bool(check_site(name))
    except UsageError:
        return False


def _fields(content: Any, what: str) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise ValueError(f"not {what}")
    return content


def _time(found: dict[str, Any], name: str) -> float:
    value = found.get(name, 0.0)
    if type(value) not in (int, float) or not 0 <= value < LATEST:
        raise ValueError(f"{name} is not a time")
    return float(value)


def _texts(found: dict[str, Any], name: str) -> list[str]:
    texts = found.get(name, [])
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{name} is not a list of names")
    return texts


def _members(found: dict[str, Any], name: str, window: str) -> list[str]:
    """Return the names of sketches, after checking that all belong to this window."""
    names = _texts(found, name)
    try:
        strangers = [each for each in names if Parcel.parse(each).window_name != window]
    except UsageError as error:
        raise ValueError(f"{name}: {error}") from None
    if strangers:
        raise ValueError(f"{name}: {strangers[0]} is of another window")
    return names


def _sites(found: dict[str, Any], name: str) -> list[str]:
    try:
        return [check_site(site, name) for site in _texts(found, name)]
    except UsageError as error:
        raise ValueError(str(error)) from None
