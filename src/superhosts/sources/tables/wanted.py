"""Which columns of a table, or keys of its records, are wanted: two ends, a time, and details where a run wants them.

Several names for one thing are tried in their order, line by line: a log with an IPv4 and an IPv6
column, or an event that has the start of its flow or only a time of its own.

A table without a description of its own, such as a Parquet file or plain CSV, has the details of the log whose columns
it has. A column that is not there leaves what it would say unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from superhosts.errors import InputError
from superhosts.sources.tables.details import DetailFields, Values, make_codes
from superhosts.sources.tables.knownlogs import CONVERSATION, LOGS, RECORD, Log
from superhosts.sources.tables.mapping import (
    DETAILS,
    Column,
    Mapping,
    as_column,
    by_name,
    columns_found,
    has_usual_names,
    map_option,
    named,
    resolve,
    usual_details,
)
from superhosts.sources.tables.options import TableOptions

FIELDS = Values._fields  # Callers map those that `mapping.DETAILS` has.


@dataclass(frozen=True)
class Wanted:
    """Columns or keys by what they mean, the preferred ones first."""

    src: tuple[Column, ...]
    dst: tuple[Column, ...]
    time: tuple[Column, ...] = ()
    duration: tuple[Column, ...] = ()  # none if the sign is 0
    sign: int = 0  # 1: the duration is added to the time, -1: it is subtracted
    kind: str = ""  # the field that says what a record is
    kinds: tuple[str, ...] = ()  # and those that count
    details: DetailFields | None = None  # None: not wanted

    def times(self) -> list[str]:
        return [column.name for column in (*self.time, *self.duration)]

    def used(self) -> list[str]:
        ends = [column.name for column in (*self.src, *self.dst)]
        return [*ends, *self.times(), *([self.kind] if self.kind else [])]

    def names(self) -> list[str]:
        return [*self.used(), *(name for names in self.more() for name in names)]

    def more(self) -> list[tuple[str, ...]]:
        """Return the fields of details, role by role; one that is also the kind of a record is not among them."""
        if self.details is None:
            return []
        return [tuple(name for name in names if name != self.kind) for names in self.details.names]


def wanted_of(log: Log, columns: Sequence[str], options: TableOptions, file: str) -> Wanted:
    """Return what is wanted of a table with these columns. InputError says which are missing."""
    asked = options.map or Mapping()
    known = by_name(columns)

    def present(role: str, names: tuple[str, ...]) -> tuple[Column, ...]:
        given: Column | None = getattr(asked, role)
        fields = [given] if given is not None else [as_column(name, role) for name in names]
        return tuple(Column(known[field.name.lower()], field.unit) for field in fields if field.name.lower() in known)

    src, dst = present("src", log.src), present("dst", log.dst)
    start, end, duration = (
        present(role, names) for role, names in (("time", log.start), ("time_end", log.end), ("duration", log.duration))
    )
    if not log.src or not src or not dst:
        found = resolve(asked, columns, file)
        src, dst, start, end, duration = (
            () if column is None else (column,)
            for column in (found.src, found.dst, found.time, found.time_end, found.duration)
        )
    else:
        resolve(asked._replace(src=src[0], dst=dst[0]), columns, file)  # checks what was asked for
    if asked.untimed:
        start = end = ()
    elif asked.time is not None:
        end = () if asked.time_end is None else end
        duration = () if asked.duration is None else duration
    time, sign = _time(start, end, duration, options.row_time)
    is_other = time and not sign and not (start if options.row_time == "start" else end)
    if is_other and (not log.start or asked.has_time):  # Records of a known log may have one time only.
        start_way, end_way = map_option("time=COLUMN"), f"{map_option('time_end=COLUMN')} or duration=COLUMN"
        way = start_way if options.row_time == "start" else end_way
        what = f"the {options.row_time} of its rows is not known; name its column: {way}"
        raise InputError(f"{what}; {columns_found(columns)}", file=file)
    duration, kind = duration if sign else (), log.kind if log.kind in columns else ""
    roles = {kind: "kind"} if kind else {}
    for role, fields in (("src", src), ("dst", dst), ("time", time), ("duration", duration)):
        _give(role, [column.name for column in fields], roles, columns, file)
    details = details_of(log, columns, options, roles, file)
    return Wanted(src, dst, time, duration, sign, kind, log.kinds, details)


def check_ends(log: Log, columns: Sequence[str], options: TableOptions, file: str) -> None:
    """Raise InputError if these columns have no end and the program has another log that would do."""
    asked, known = options.map or Mapping(), {name.strip().lower() for name in columns}
    has_ends = known.intersection((*log.src, *log.dst)) or has_usual_names(columns)
    if log.advice and not has_ends and asked.src is None and asked.dst is None:
        raise InputError(f"{log.advice}; {columns_found(columns)}", file=file)


def candidates_of(log: Log, *, details: bool) -> list[str]:
    """Return the names of all fields that records of a log may have."""
    times = [as_column(name, "time").name for name in (*log.start, *log.end, *log.duration)]
    described = [name for role in FIELDS for name in getattr(log, role)] if details else []
    return [*log.src, *log.dst, *times, *([log.kind] if log.kind else []), *described]


def _time(
    start: tuple[Column, ...], end: tuple[Column, ...], duration: tuple[Column, ...], which: str
) -> tuple[tuple[Column, ...], int]:
    """Return the fields that are the time of a row, and whether its duration is added (1) or subtracted (-1)."""
    if which == "start":
        return (start, 0) if start or not end else (end, -1 if duration else 0)
    if end:
        return (*end, *(column for column in start if column not in end)), 0
    return start, 1 if start and duration else 0


def _give(role: str, names: Sequence[str], roles: dict[str, str], columns: Sequence[str], file: str) -> None:
    """Note the role of some columns; InputError if one of them has another role."""
    for name in dict.fromkeys(names):
        if name in roles:
            raise InputError(
                f"{roles[name]} and {role} are the same column, {name}; {columns_found(columns)}", file=file
            )
        roles[name] = role


def details_of(
    log: Log, columns: Sequence[str], options: TableOptions, roles: dict[str, str], file: str
) -> DetailFields | None:
    """Return the columns of details of a table, None if no details are wanted.

    `roles` are those of its columns so far. InputError if a column that the caller names means two things.
    """
    if not options.details:
        return None
    log = log if log.src else next((each for each in LOGS if each.is_marked(columns)), log)
    mapped = named(options.map or Mapping(), columns, file)
    own_ends = mapped.src is None and mapped.dst is None
    known = by_name(columns)
    usual = usual_details(columns)
    fields: list[tuple[str, ...]] = []
    for role in FIELDS:
        given = getattr(mapped, role) if role in DETAILS else None
        if given is not None:
            found = [given.name]
            _give(role, found, roles, columns, file)
        else:
            found = [known[name.lower()] for name in getattr(log, role) if name.lower() in known]
            guess = getattr(usual, role, None)
            if not found and guess is not None:
                found = [guess.name]
            # The kind of a record may also say its direction or its state.
            found = [name for name in dict.fromkeys(found) if name not in roles or name == log.kind]
        if role == "replies" and fields[-2]:
            found = found[:1]  # The state says most; further columns would take time to find.
        roles.update(dict.fromkeys(found, role))
        fields.append(tuple(found))
    # The columns that the caller takes for the ends need not be who opened and who answered.
    claim = log.claim if own_ends else RECORD
    if mapped.state is not None or mapped.replies is not None:
        claim = CONVERSATION
    elif not own_ends:
        fields[FIELDS.index("direction") :] = [()] * 4
    return DetailFields(tuple(fields), make_codes(log, claim))
