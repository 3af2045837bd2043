"""CITATION.cff: it names this version, and the paper as docs/explanation/paper.md does."""

from __future__ import annotations

import re
from pathlib import Path

from superhosts import __version__

ROOT = Path(__file__).parent.parent


def test_the_citation_names_this_version_and_the_paper() -> None:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.*)$", text, re.M) == [__version__]
    (title,) = re.findall(r"^ +title: (.*)$", text, re.M)
    (number,) = re.findall(r"arXiv:(\d+\.\d+)", text)
    first = (
        (ROOT / "docs" / "explanation" / "paper.md")
        .read_text(encoding="utf-8")
        .partition("## References")[2]
        .split("\n2. ")[0]
    )
    assert title in first
    assert f"arXiv:{number}" in first
    assert all(name in first for name in re.findall(r"family-names: (.*)", text))


def test_every_reference_is_cited() -> None:
    text, _, references = (
        (ROOT / "docs" / "explanation" / "paper.md").read_text(encoding="utf-8").partition("## References")
    )
    numbers = re.findall(r"^(\d+)\. ", references, re.M)
    assert numbers == [str(number) for number in range(1, len(numbers) + 1)]
    assert set(re.findall(r"\[(\d+)\]", text)) == set(numbers)
