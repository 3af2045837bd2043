"""The pages about rows and about the wire name what the code has, and CITATION.cff this version and the paper."""

from __future__ import annotations

import re

import pytest

from places import DOCS, ROOT
from superhosts import __version__
from superhosts.fleet.link import MAX_REASON, MERGED, REFUSED, RESEND, Receipt
from superhosts.fleet.names import DIGITS
from superhosts.fleet.nats import messages
from superhosts.fleet.nats.credentials import PREFIX, VERSION, Token
from superhosts.output.report import COLUMNS, HUB_COLUMNS

ROWS = (DOCS / "reference" / "rows.md").read_text("utf-8")
WIRE = (DOCS / "reference" / "wire.md").read_text("utf-8")


def first_cells(text: str) -> list[str]:
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return [name for cell in rows for name in re.findall(r"`([^`]+)`", cell)]


def test_the_page_of_rows_has_every_column_in_order() -> None:
    head = first_cells(ROWS[: ROWS.index("\n## ")])
    assert head == list(COLUMNS)
    assert set(HUB_COLUMNS) - set(COLUMNS) <= set(first_cells(ROWS[ROWS.index("\n## Rows of a hub") :]))


@pytest.mark.parametrize("mark", ["partial", "revision", "counts", "filter", "sampling", "drops", "pattern", "reason"])
def test_the_page_of_rows_has_the_marks_of_some_rows(mark: str) -> None:
    assert mark in first_cells(ROWS)


def test_the_page_of_the_wire_has_subjects_and_headers() -> None:
    named = set(first_cells(WIRE))
    assert {messages.CHUNKS.replace("*", "SITE"), messages.QUESTIONS.replace("*", "SITE")} <= named
    chunk = messages.Chunk("20261114T120000Z-5m-ams-1a2b3c4d5e6f7081.cube", 0, 10, 10)
    told = messages.PeerInfo(messages.WIRE, "1", 1, (1, 1), "notice").headers()
    assert {*chunk.headers("1"), *told} <= named
    assert f"the version of the messages: {messages.wire_text(messages.WIRE)}" in WIRE
    assert {MERGED, REFUSED, RESEND} <= named
    assert f"`{messages.STREAM}`, whose consumer is `{messages.CONSUMER}`" in WIRE


def test_the_page_of_the_wire_has_the_limits() -> None:
    words = " ".join(WIRE.split())
    for number in (messages.MAX_PIECES, messages.MIN_STEP, messages.QUESTION, MAX_REASON):
        assert f"{number:,} " in words
    sizes = (messages.CHUNK >> 10, messages.HEADERS >> 10, messages.LARGEST >> 30)
    assert "{} KiB and {} KiB more".format(*sizes) in words
    assert f"pieces and {sizes[2]} GiB" in words
    assert f"first {DIGITS} hexadecimal digits" in words
    assert all(f'"{name}": …' in words for name in Receipt._fields)
    assert f"`{PREFIX}{VERSION}_…`" in words
    assert all(f"`{name}`" in words for name in Token.__dataclass_fields__)


def test_the_citation_names_this_version_and_the_paper() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    text, _, references = (DOCS / "explanation" / "paper.md").read_text(encoding="utf-8").partition("## References")
    assert re.findall(r"^version: (.*)$", citation, re.M) == [__version__]
    (title,) = re.findall(r"^ +title: (.*)$", citation, re.M)
    (number,) = re.findall(r"arXiv:(\d+\.\d+)", citation)
    first = references.split("\n2. ")[0]
    names = re.findall(r"family-names: (.*)", citation)
    assert all(each in first for each in (title, f"arXiv:{number}", *names))
    numbers = re.findall(r"^(\d+)\. ", references, re.M)
    assert numbers == [str(number) for number in range(1, len(numbers) + 1)]
    assert set(re.findall(r"\[(\d+)\]", text)) == set(numbers)
