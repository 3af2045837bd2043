"""What a hub knows of one window: who is in, what was reported. Kept as JSON, and checked when it is read again."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from superhosts.errors import UsageError
from superhosts.fleet.parcels import Parcel, check_site

UNKNOWN = 0  # the revision of a window that was reported, when what was written down of it is lost
LATEST = 1e12  # seconds since 1970: no clock shows more
MOST_REVISIONS = 1 << 53  # more than a reader of JSON may take for an exact number


@dataclass
class Issue:
    """One report of a window: which sketches are in it, and who is missing."""

    revision: int = 1
    members: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    @classmethod
    def parse(cls, content: Any, window: str) -> Issue | None:
        """Read what was written of a report; None where there was none. ValueError: it makes no sense."""
        if content is None:
            return None
        found = _fields(content, "a report")
        revision = found.get("revision", 1)
        if type(revision) is not int or not UNKNOWN <= revision < MOST_REVISIONS:
            raise ValueError("revision is not a number of reports")
        return cls(revision, _members(found, "members", window), _sites(found, "missing"))


@dataclass
class Ledger:
    """What a hub knows of one window."""

    first: float = 0.0  # when its first sketch came, by this machine's clock; so is the next
    unreported: float = 0.0  # when the first sketch came that is in no report yet, the last report was made if it came
    # before that, or the window was taken back
    known: list[str] = field(default_factory=list)  # all sketches that were ever accepted
    merged: list[str] = field(default_factory=list)  # sketches that are in the union on disk
    issued: Issue | None = None  # the last report that has left the hub
    issuing: Issue | None = None  # a report that is being made: after a crash it is made again, the same
    held: list[str] = field(default_factory=list)  # sites in the union whose sketches' names are lost

    @classmethod
    def parse(cls, content: Any, window: str) -> Ledger:
        """Read the ledger of a window, written by this release or a newer one. ValueError: it makes no sense."""
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
        """Say whether there is something to report that was not reported."""
        return self.issuing is not None or set(self.known) != set(self.issued.members if self.issued else ())

    @property
    def sites_to_report(self) -> set[str]:
        """The sites whose sketches are in no report yet."""
        reported = set(self.issued.members if self.issued else ())
        return {Parcel.parse(name).site for name in list(self.known) if name not in reported}

    @property
    def names_lost(self) -> bool:
        """Say whether the window was reported, and nobody knows any more which sketches were in it."""
        return self.issued is not None and not self.issued.members

    @property
    def next_revision(self) -> int:
        """The number of the next report: always higher than all before.

        Where the last number is lost, it is the time: no window has had a report every second.
        """
        if self.issued is None:
            return 1
        return self.issued.revision + 1 if self.issued.revision != UNKNOWN else max(2, int(time.time()))

    def adopt(self, issue: Issue, sites: Iterable[str] = ()) -> None:
        """Take over what another place knows of the last report, and this ledger does not; `sites` are in the union."""
        self.known += [name for name in issue.members if name not in self.known]
        own = self.issued or Issue(UNKNOWN)
        if issue.revision > own.revision or not own.members:
            self.issued = Issue(max(issue.revision, own.revision), list(issue.members), list(issue.missing))
        self.held = sorted({*self.held, *filter(_is_site, sites)})  # a name that is known again does no harm there

    @property
    def sites(self) -> set[str]:
        """The sites that are in."""
        return {Parcel.parse(name).site for name in list(self.known)} | set(self.held)


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
    """Return names of sketches, each of this window."""
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
