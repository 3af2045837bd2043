"""Which fields of a log of text are wanted: candidates of its description that are there, and what the caller maps.

What the caller maps comes before all candidates. Tables that are no known log have a description without candidates:
then the usual names decide (`mapping.resolve`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from superhosts.errors import InputError
from superhosts.sources.tables.detailfields import details_of
from superhosts.sources.tables.log import Log
from superhosts.sources.tables.mapping import UNITS, Column, Mapping, columns_found, has_usual_names, resolve, row_times
from superhosts.sources.tables.options import TableOptions
from superhosts.sources.tables.textlayout import Wanted


def check_ends(log: Log, columns: Sequence[str], options: TableOptions, file: str) -> None:
    """Raise InputError if these columns have no end and the program has another log that would do."""
    asked, known = options.map or Mapping(), {name.strip().lower() for name in columns}
    has_ends = known.intersection((*log.src, *log.dst)) or has_usual_names(columns)
    if log.advice and not has_ends and asked.src is None and asked.dst is None:
        raise InputError(f"{log.advice}; {columns_found(columns)}", file=file)


def wanted_of(log: Log, columns: Sequence[str], options: TableOptions, file: str) -> Wanted:
    """Return what is wanted of a table with these columns. InputError says which are missing."""
    asked = options.map or Mapping()
    known = {name.strip().lower(): name for name in reversed(columns)}

    def present(role: str, names: tuple[str, ...]) -> tuple[Column, ...]:
        given: Column | None = getattr(asked, role)
        fields = [given] if given is not None else [as_column(name) for name in names]
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
        resolve(replace(asked, src=src[0], dst=dst[0]), columns, file)  # checks what was asked for
    if asked.untimed:
        start = end = ()
    elif asked.time is not None:
        end = () if asked.time_end is None else end
        duration = () if asked.duration is None else duration
    if not log.start or asked.has_time:  # Records of a known log may have one time only.
        known_times = Mapping(time=_one(start), time_end=_one(end), duration=_one(duration))
        row_times(known_times, options.row_time, columns, file)
    time, sign = _time(start, end, duration, options.row_time)
    wanted = Wanted(src, dst, time, duration if sign else (), sign, log.kind if log.kind in columns else "", log.kinds)
    _check_distinct(wanted, columns, file)
    return replace(wanted, details=details_of(log, columns, options, wanted.used(), file))


def _one(columns: tuple[Column, ...]) -> Column | None:
    return columns[0] if columns else None


def _check_distinct(wanted: Wanted, columns: Sequence[str], file: str) -> None:
    """Raise InputError if one column is to mean two things."""
    seen: dict[str, str] = {}
    roles = ("src", wanted.src), ("dst", wanted.dst), ("time", wanted.time), ("duration", wanted.duration)
    for role, fields in roles:
        for name in dict.fromkeys(column.name for column in fields):
            if name in seen:
                raise InputError(
                    f"{seen[name]} and {role} are the same column, {name}; {columns_found(columns)}", file=file
                )
            seen[name] = role


def as_column(text: str) -> Column:
    """Return a field of a description."""
    name, colon, unit = text.rpartition(":")
    return Column(name, unit) if colon and unit in UNITS else Column(text)


def _time(
    start: tuple[Column, ...], end: tuple[Column, ...], duration: tuple[Column, ...], which: str
) -> tuple[tuple[Column, ...], int]:
    """Return the fields that are the time of a row, and whether its duration is added (1) or subtracted (-1)."""
    if which == "start":
        return (start, 0) if start or not end else (end, -1 if duration else 0)
    if end:
        return (*end, *(column for column in start if column not in end)), 0
    return start, 1 if start and duration else 0
