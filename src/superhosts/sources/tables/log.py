"""What describes a log of text: how it is recognised, and which of its fields mean what.

A description is data; `knownlogs.py` has them all. Which columns a table has decides which of the candidates are used
(`logfields.py`).
"""

from __future__ import annotations

from collections.abc import Mapping as Dict
from collections.abc import Sequence
from dataclasses import dataclass, field

from superhosts.sources.tables.claims import ICMP_NOWHERE, RECORD


@dataclass(frozen=True)
class Log:
    """A kind of log or table. A field is "name", or "name:unit" for numbers of a known unit."""

    name: str  # for --format
    title: str
    marks: tuple[str, ...] = ()  # a header or an object that has all names of one of these lists is such a log
    src: tuple[str, ...] = ()
    dst: tuple[str, ...] = ()
    advice: str = ""  # what to do with a log of this program that has neither end
    start: tuple[str, ...] = ()
    end: tuple[str, ...] = ()
    duration: tuple[str, ...] = ()
    kind: str = ""  # the field that says what a record is
    kinds: tuple[str, ...] = ()  # and those that count
    has_several: bool = False  # a record may have several of the candidates, some of them zero or not set
    delimiter: str = ""  # of delimited text; "": found in the first line
    quote: str = '"'
    columns: tuple[str, ...] = ()  # of delimited text that has no header, by the number of columns
    footer: str = ""  # what begins the line behind the last row
    # Details, which are read where a run wants them
    proto: tuple[str, ...] = ()
    sport: tuple[str, ...] = ()
    dport: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()  # of TCP, from source to destination or of both
    has_hex_flags: bool = False  # flags are hexadecimal digits without 0x
    icmp_type: tuple[str, ...] = ()
    icmp_place: int = ICMP_NOWHERE  # where the type of ICMP messages is, if no field has it
    claim: int = RECORD  # what a record claims about a conversation (claims.py), unless these fields say otherwise:
    direction: str = ""  # the field whose words are `directions`
    directions: Dict[str, int] = field(default_factory=dict, hash=False)
    state: tuple[str, ...] = ()  # fields whose words are `states`
    states: Dict[str, int] = field(default_factory=dict, hash=False)
    reply_flags: tuple[str, ...] = ()  # of TCP, from destination to source
    replies: tuple[str, ...] = ()  # packets or bytes from destination to source

    def is_marked(self, names: Sequence[str]) -> bool:
        """Return True if these columns or keys are those of such a log. Marks are in lower case."""
        known = {name.strip().lower() for name in names}
        return any(known.issuperset(mark.split(",")) for mark in self.marks)
