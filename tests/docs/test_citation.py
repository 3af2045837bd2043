"""CITATION.cff: it names this version, and the paper as docs/explanation/paper.md does, whose references are cited."""

from __future__ import annotations

import re

from places import DOCS, ROOT
from superhosts import __version__


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
