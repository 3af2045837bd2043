"""JSON Lines; `fuzz/texts.py` compares them with the oracle."""

from __future__ import annotations

from functools import partial

import pytest

import naive_text
from superhosts.errors import InputError
from superhosts.sources.tables.formats import JSON_LINES, begin_text
from superhosts.sources.tables.textreader import TextReader
from table_reading import Drips, Reading, options, read


def read_text(text: str, step: int = 1 << 20, map: str = "src=src,dst=dst,time=time") -> Reading:
    data = Drips(text.encode("utf-8", "surrogatepass"), step)
    return read(TextReader(data, partial(begin_text, "text", JSON_LINES, options(map))))


def test_escapes_in_keys_and_values_are_resolved() -> None:
    text = '{"\\u0073rc":"1.1.1.1","dst":"2001:db8\\u003a:1","time":"2024\\/01\\/02"}\n'
    found = read_text('{"src":"::2","dst":"::1","time":1}\n' + text)
    assert found.bad == 1
    text = text.replace("1.1.1.1", "\\u003a:1")
    found = read_text('{"src":"::2","dst":"::1","time":1}\n' + text)
    assert found.rows[1][1] == 1
    assert found.rows[1][3] == naive_text.time("2024/01/02")


def test_an_array_with_one_object_per_line() -> None:
    text = '[{"src":"1.1.1.1","dst":"2.2.2.2","time":5},\n{"src":"1.1.1.1","dst":"3.3.3.3","time":6}\n]\n'
    assert len(read_text(text).rows) == 2
    text = '[\n{"src":"1.1.1.1","dst":"2.2.2.2","time":5}\n,{"src":"1.1.1.1","dst":"3.3.3.3","time":6}]'
    assert len(read_text(text).rows) == 2


GOOD = '{"src":"1.1.1.1","dst":"2.2.2.2","time":5}'


def test_hostile_lines_are_bad_and_harm_no_other() -> None:
    for line in (
        "{",
        "}",
        "{}}",
        '{"src"}',
        '{"src":}',
        '{"src":"1.1.1.1","dst":"2.2.2.2","time":5',
        '{"src":"1.1.1.1","dst":"2.2.2.2","time":5}x',
        '{"a":"\\',
        '{"a":"}',
        '{"a":' + "[" * 100_000 + "}",
        '{"a":' * 50_000 + "1" + "}" * 49_999 + "]",
        '{"src":"1.1.1.1" "dst":"2.2.2.2"}',
        '{"src":1e400,"dst":-1,"time":5}',
        "[1, 2]",
        "null",
        "\0" * 20,
        '{"src":"\ud800","dst":"\x7f","time":5}',
    ):
        for step in (7, 1 << 20):
            found = read_text("\n".join([GOOD, line, GOOD, ""]), step)
            assert (len(found.rows), found.bad) == (2, 1), line[:50]


def test_deep_values_are_skipped() -> None:
    deep = '{"a":' + '[{"b":' * 100_000 + "1" + "}]" * 100_000 + ',"src":"1.1.1.1","dst":"2.2.2.2","time":7}'
    found = read_text(f"{GOOD}\n{deep}\n")
    assert [row[3] for row in found.rows] == [5 * 10**9, 7 * 10**9]


def test_a_record_without_addresses_is_skipped_and_with_one_is_bad() -> None:
    found = read_text(f'{GOOD}\n{{"event":"close"}}\n{{"src":"1.1.1.1","time":5}}\n')
    assert (len(found.rows), found.skipped, found.bad) == (1, 1, 1)


def test_columns_are_the_paths_of_the_first_objects() -> None:
    text = '{"a":{"b":1,"c":{"d":2}},"e":[1],"x.y":3}\n'
    with pytest.raises(InputError, match=r"its columns: a\.b, a\.c\.d, e, x\.y$"):
        read_text(text, map="time=e")


def test_the_last_line_counts_if_it_is_whole() -> None:
    assert len(read_text(f"{GOOD}\n{GOOD}").rows) == 2
    found = read_text(f"{GOOD}\n{GOOD[:-4]}")
    assert (len(found.rows), found.bad) == (1, 1)
    assert "ends inside this line" in found.first_bad[0].text
