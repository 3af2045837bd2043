"""Which columns of a table have details, and what its records claim.

What the caller maps comes first, then what the description of a log names, then the usual names (`mapping.py`). A table
without a description of its own, such as a Parquet file or plain CSV, is taken for the log whose columns it has. A
column that is not there leaves what it would say unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from superhosts.errors import InputError
from superhosts.sources.tables.claims import CONVERSATION, RECORD
from superhosts.sources.tables.detailvalues import Codes, make_codes
from superhosts.sources.tables.knownlogs import CSV, LOGS
from superhosts.sources.tables.log import Log
from superhosts.sources.tables.mapping import DETAILS, Mapping, columns_found, named, usual_details
from superhosts.sources.tables.options import TableOptions

# The fields of details, in the order of their values (detailvalues.py). Callers map those that `mapping.DETAILS` has.
FIELDS = ("proto", "sport", "dport", "flags", "icmp_type", "direction", "state", "reply_flags", "replies")
_PROTO, _SPORT, _DPORT, _FLAGS = range(4)


@dataclass(frozen=True)
class DetailFields:
    """The names of the columns of each of FIELDS, the preferred ones first, and how their values are read."""

    names: tuple[tuple[str, ...], ...]
    codes: Codes

    def columns(self) -> list[str]:
        """Return all names, each once."""
        return list(dict.fromkeys(name for names in self.names for name in names))


def candidates_of(log: Log) -> list[str]:
    """Return the fields of details that records of a log may have."""
    return [name for names in _described(log) for name in names]


def details_of(
    log: Log | None, columns: Sequence[str], options: TableOptions, used: Sequence[str], file: str
) -> DetailFields | None:
    """Return the columns of details of a table, None if no details are wanted.

    `used` are its source, destination and times. InputError if a column that the caller names means two things.
    """
    if not options.details:
        return None
    asked = options.map or Mapping()
    log = log if log is not None and log.src else next((each for each in LOGS if each.is_marked(columns)), log or CSV)
    mapped = named(asked, columns, file)
    own_ends = mapped.src is None and mapped.dst is None
    known = {name.strip().lower(): name for name in reversed(columns)}
    usual = usual_details(columns)
    taken = dict.fromkeys(used, "another")
    fields: list[tuple[str, ...]] = []
    for role, described in zip(FIELDS, _described(log), strict=True):
        given = getattr(mapped, role) if role in DETAILS else None
        if given is not None:
            found = [given.name]
            if given.name in taken:
                raise InputError(
                    f"{role} and {taken[given.name]} role have the same column, {given.name}; {columns_found(columns)}",
                    file=file,
                )
        else:
            found = [known[name.lower()] for name in described if name.lower() in known]
            guess = getattr(usual, role, None)
            if not found and guess is not None:
                found = [guess.name]
            shared = log.kind if role == "direction" else ""  # the kind of a record, which is wanted anyway
            found = [name for name in dict.fromkeys(found) if name not in taken or name == shared]
        if role == "replies" and fields[-2]:
            found = found[:1]  # The state says most; further columns would take time to find.
        taken.update(dict.fromkeys(found, role))
        fields.append(tuple(found))
    # The columns that the caller takes for the ends need not be who opened and who answered.
    claim = log.claim if own_ends else RECORD
    if mapped.state is not None or mapped.replies is not None:
        claim = CONVERSATION
    elif not own_ends:
        fields[FIELDS.index("direction") :] = [()] * 4
    codes = make_codes(
        log.directions,
        log.states or CSV.states,
        claim=claim,
        icmp_place=log.icmp_place,
        has_hex_flags=log.has_hex_flags,
    )
    return DetailFields(tuple(fields), codes)


def _described(log: Log) -> list[tuple[str, ...]]:
    direction = (log.direction,) if log.direction else ()
    described = [log.proto, log.sport, log.dport, log.flags, log.icmp_type]
    return [*described, direction, log.state, log.reply_flags, log.replies]
