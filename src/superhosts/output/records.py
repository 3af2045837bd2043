"""What goes to destinations that send: records in batches.

A record is a plain dictionary that JSON can hold. `kind` says what it is about ("superhost": a result row), `id` is the
same each time this record is sent, so that a receiver can drop repeats, and `site` says which installation sent it.
The other fields are those of the row. A batch holds records of one window, with what people should know about all of
them. Senders look only at batches and records, so they also carry other kinds of records.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import Any

from superhosts.core.times import iso_time
from superhosts.output.report import Report

NAMES = ("label", "name", "asn", "as_name", "country")  # fields of rows that say who a host is
Record = dict[str, Any]
SUPER_HOST, ALERT = "superhost", "alert"  # kinds of records
OPENED, GROWN, CLOSED, STORM = "opened", "grown", "closed", "storm"  # events of alerts
LINKS = 5  # in a message that has them as buttons
SHOWN = 20  # records in a message for people
OPEN = "open"  # an alert that stays open, for destinations that forget it otherwise


@dataclass(frozen=True)
class Batch:
    id: str
    records: list[Record]
    kind: str = SUPER_HOST
    site: str = ""
    heading: str = ""  # one line for people
    window_start: str | None = None
    window_end: str | None = None
    revision: int = 1  # 2 and more: these records replace the earlier ones of the window
    part: int = 1  # of a window whose records do not fit one batch
    parts: int = 1
    seconds: float | None = field(default=None)  # the length of the window

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: Any) -> Batch:
        """Return the batch that `as_json` described. Raises ValueError if the content is something else."""
        if not isinstance(content, dict) or not isinstance(content.get("id"), str):
            raise ValueError("not a batch of records")
        records = content.get("records")
        if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
            raise ValueError("not a batch of records")
        try:
            return cls(**content)
        except TypeError as error:  # a field that this version does not have
            raise ValueError(str(error)) from None


def batches_of(report: Report, site: str = "", most: int | None = None) -> Iterator[Batch]:
    """Yield the records of a report, at most `most` in a batch.

    A window without hosts is not sent, unless it replaces an earlier report of the window.
    """
    rows = report.rows
    if not rows and report.revision == 1:
        return
    size = most or max(len(rows), 1)
    starts = range(0, max(len(rows), 1), size)
    window = report.window if report.window is not None and report.window.is_timed else None
    for part, start in enumerate(starts, start=1):
        records = [make_record(row, site, report.revision) for row in rows[start : start + size]]
        times = (None, None) if window is None else (iso_time(window.start), iso_time(window.end))
        about = [site, *times, report.revision, part, [record["id"] for record in records]]
        yield Batch(
            id=_digest(about),
            records=records,
            kind=records[0]["kind"] if records else SUPER_HOST,
            site=site,
            heading=report.heading,
            window_start=times[0],
            window_end=times[1],
            revision=report.revision,
            part=part,
            parts=len(starts),
            seconds=None if window is None else (window.end - window.start) / 1e9,
        )


def make_record(row: Mapping[str, Any], site: str = "", revision: int = 1) -> Record:
    """Return the record of a row. Its id depends on the row, the site and the revision alone.

    Who a host is may be known only when a report is handed in again, so names are not part of the id.
    """
    kind = SUPER_HOST if "host" in row else "row"
    found = {name: value for name, value in row.items() if name not in NAMES}
    return {"kind": kind, "id": _digest([kind, site, revision, found]), "site": site, **row}


def _digest(content: Sequence[Any]) -> str:
    return digest_of(json.dumps(content, sort_keys=True, separators=(",", ":"), default=str).encode())


def digest_of(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


def describe(record: Record) -> str:
    """Return one line for people about a record: "10.1.2.3: 4120 peers (4043 to 4197)"; alerts have theirs as text."""
    if "text" in record:
        return str(record["text"])
    low, high, peers = (record.get(name) for name in ("peers_low", "peers_high", "peers"))
    what = record.get("counts") or "peers"
    if peers is None:
        number = f"at least {low} {what}" if low is not None else f"{what} not known"
    else:
        number = f"{peers} {what}" + (f" ({low} to {high})" if low != high else "")
    way, pattern = record.get("direction"), record.get("pattern")
    called = next((f" ({record[name]})" for name in ("label", "name", "as_name") if record.get(name)), "")
    group = f" of {record['group']}" if record.get("group") else ""
    found = f"{record.get('host', record['kind'])}{group}{called}: {number}"
    return found + (f", direction {way}" if way not in (None, "any") else "") + (f", {pattern}" if pattern else "")


def title_of(record: Record) -> str:
    """Return the first clause of a line, which alone is a sentence: the subject of a mail."""
    line = describe(record)
    return line if "held_back" in record else line.partition("; ")[0]


def heading(batch: Batch) -> str:
    where = f" ({batch.site})" if batch.site else ""
    part = f", part {batch.part} of {batch.parts}" if batch.parts > 1 else ""
    return (
        f"Alerts{where}: {batch.heading}{part}" if batch.kind == ALERT else f"Super hosts{where} {batch.heading}{part}"
    )


def shown_records(batch: Batch) -> list[Record]:
    """Return the first records; a storm, which says what all others leave out, is before them."""
    return sorted(batch.records, key=lambda record: "held_back" not in record)[:SHOWN]


def links_of(records: Sequence[Record]) -> list[tuple[str, str]]:
    """Return the dashboard's pages of the hosts of alerts, each with the host: at most `LINKS`."""
    found = {str(record["url"]): str(record.get("host")) for record in records if record.get("url")}
    return [(host, url) for url, host in found.items()][:LINKS]


def shown_lines(batch: Batch) -> Iterator[str]:
    yield from (describe(record) for record in shown_records(batch))
    if len(batch.records) > SHOWN:
        yield f"and {len(batch.records) - SHOWN:,} more"
