"""The columns of ClickHouse's RowBinary: `src IPv4, dst IPv4, time DateTime64(3)`. Colons will do for blanks.

RowBinary has neither names nor types: the reader must know them. A row is its values one behind the other, numbers in
little-endian order, text behind its length (LEB128). A Nullable value has a byte before it that is 1 if the value is
missing. LowCardinality changes nothing here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from superhosts.core.text import setting
from superhosts.errors import UsageError

LITTLE, BIG, TEXT, OPAQUE = 1, 2, 3, 0  # how the bytes of a value are read: as what kind of number, as text, not at all
TEXT_WIDTH = 0  # in place of the bytes of a value: its length is before it
EXAMPLE = "src IPv4, dst IPv4, time DateTime"

_NUMBERS = {
    **{f"{sign}Int{bits}": bits // 8 for sign in ("U", "") for bits in (8, 16, 32, 64, 128, 256)},
    "Bool": 1,
    "Date": 2,
    "Date32": 4,
    "DateTime": 4,
    "DateTime64": 8,
    "IPv4": 4,
}
_OTHERS = {"Float32": 4, "Float64": 8, "BFloat16": 2, "UUID": 16, "Enum8": 1, "Enum16": 2}
_DECIMALS = {"Decimal32": 4, "Decimal64": 8, "Decimal128": 16, "Decimal256": 32}
_WRAPPERS = ("LowCardinality", "SimpleAggregateFunction")


@dataclass(frozen=True)
class Field:
    """A column: its name, and how its values look."""

    name: str
    type: str  # without Nullable and LowCardinality
    width: int  # bytes of a value; TEXT_WIDTH for text
    reading: int  # LITTLE, BIG, TEXT or OPAQUE
    nullable: bool = False
    array: bool = False  # a value is a count (LEB128) and that many such values

    @property
    def is_signed(self) -> bool:
        """True if its numbers may be negative."""
        return self.type.startswith(("Int", "DateTime64", "Date32"))

    @property
    def is_float(self) -> bool:
        """True for floating-point numbers, which only times may be."""
        return self.type in ("Float32", "Float64")

    @property
    def is_address(self) -> bool:
        """True if its values can be addresses."""
        if self.reading == TEXT:
            return True
        integer = re.fullmatch(r"U?Int(8|16|32|64|128)", self.type) is not None
        return self.type in ("IPv4", "IPv6") or integer or (self.reading == BIG and self.width in (4, 16))

    @property
    def is_time(self) -> bool:
        """True if its values can be times."""
        if self.reading == TEXT or self.is_float:
            return True
        return self.reading == LITTLE and self.width <= 8 and self.type not in ("IPv4", "Bool")

    @property
    def precision(self) -> int:
        """Digits behind the second of a DateTime64."""
        match = re.match(r"DateTime64\((\d)", self.type)
        return int(match[1]) if match else 0


def parse_schema(text: str, *, typed: bool = True) -> list[Field]:
    """Return the columns that a text like `src IPv4, dst IPv4` lists. Without `typed` a name alone is text."""
    fields: list[Field] = []
    for item in _items(text):
        name, type = _name_and_type(item)
        if not type and typed:
            raise UsageError(f"{_option(text)}: {item!r}: write a name and a type, like {EXAMPLE}")
        if any(field.name == name for field in fields):
            raise UsageError(f"{_option(text)}: two columns {name!r}; give them different names")
        try:
            fields.append(field_of(name, type or "String"))
        except UsageError as error:
            raise UsageError(f"{_option(text)}: {error}") from None
    if not fields:
        raise UsageError(f"{_option(text)}: no column; write it like {EXAMPLE!r}")
    return fields


def field_of(name: str, type: str) -> Field:
    """Return a column by its name and ClickHouse's name of its type; UsageError if such values cannot be read."""
    inner, nullable, array = type.strip(), False, False
    while match := re.fullmatch(r"(\w+)\((.*)\)", inner, re.DOTALL):
        wrapper, rest = match[1], match[2].strip()
        if wrapper == "Nullable" and not nullable:
            nullable, inner = True, rest
        elif wrapper == "Array" and not array and not nullable:
            array, inner = True, rest
        elif wrapper in _WRAPPERS:
            inner = _items(rest)[-1]
        else:
            break
    plain = re.sub(r"\(.*", "", inner, flags=re.DOTALL)
    if array and nullable:
        raise _unreadable(name, type)
    if plain == "String":
        return Field(name, inner, TEXT_WIDTH, TEXT, nullable, array)
    if plain == "IPv6":
        return Field(name, inner, 16, BIG, nullable, array)
    if plain in _NUMBERS:
        return Field(name, inner, _NUMBERS[plain], LITTLE, nullable, array)
    if match := re.fullmatch(r"FixedString\((\d{1,6})\)", inner):
        if int(match[1]) > 0:
            return Field(name, inner, int(match[1]), BIG, nullable, array)
    elif plain in _OTHERS:
        return Field(name, inner, _OTHERS[plain], OPAQUE, nullable, array)
    elif plain in _DECIMALS:
        return Field(name, inner, _DECIMALS[plain], OPAQUE, nullable, array)
    elif match := re.match(r"Decimal\((\d+)", inner):
        digits = int(match[1])
        return Field(
            name, inner, 4 if digits < 10 else 8 if digits < 19 else 16 if digits < 39 else 32, OPAQUE, nullable
        )
    raise _unreadable(name, type)


def row_width(fields: Sequence[Field]) -> int | None:
    """Return the bytes of a row; None if rows differ."""
    if any(field.width == TEXT_WIDTH or field.nullable or field.array for field in fields):
        return None
    return sum(field.width for field in fields)


def _unreadable(name: str, type: str) -> UsageError:
    way = "write a type like IPv4, IPv6, UInt32 or String, or leave the column out of the query"
    return UsageError(f"column {name}: values of type {type} cannot be read; {way}")


def _name_and_type(item: str) -> tuple[str, str]:
    quoted = re.match(r"`([^`]+)`[\s:]*(.*)", item, re.DOTALL) or re.match(r'"([^"]+)"[\s:]*(.*)', item, re.DOTALL)
    if quoted:
        return quoted[1], quoted[2]
    name = re.split(r"[\s:]", item, maxsplit=1)[0]
    return name, item[len(name) :].strip(" \t\n:")


def _items(text: str) -> list[str]:
    """Split at commas that are not in parentheses."""
    items, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        if letter in "()":
            depth += 1 if letter == "(" else -1
        elif letter == "," and depth == 0:
            items.append(text[start:place])
            start = place + 1
    items.append(text[start:])
    return [item.strip() for item in items if item.strip()]


def _option(text: str) -> str:
    return setting("schema", text)
