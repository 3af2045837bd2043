"""The types of rows: from them follow docs/reference/schemas and the check of answers that come from elsewhere."""

from __future__ import annotations

from typing import Required, TypedDict

from superhosts.core.results import ResultRow
from superhosts.sketch.evidence.summary import EvidenceFields


class SeenBy(TypedDict, total=False):
    """What a site of a fleet says about a host."""

    site: Required[str]
    peers: int | None
    peers_low: int
    peers_high: int | None


class RowMarks(TypedDict, total=False):
    """The fields that only some rows have."""

    site: str
    partial: bool
    revision: int
    counts: str
    filter: str
    group: str
    sampling: int | None
    drops: int
    pattern: str | None
    reason: str | None
    evidence: EvidenceFields | None
    label: str | None
    name: str | None
    asn: int | None
    as_name: str | None
    country: str | None
    sites: list[SeenBy]  # of a hub
    missing: list[str]
    kind: str  # of rows that are sent
    id: str


class Row(ResultRow, RowMarks):
    """A host of a window."""
