"""Every link of a page leads somewhere: to a file of the project, or to a heading of a page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from places import ROOT

PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "examples").glob("*.md"),
    *ROOT.glob("deploy/**/*.md"),
]
LINK = re.compile(r"!?\[[^\]\[]*\]\(([^()\s]+)\)")
CODE = re.compile(r"^```.*?^```|^ {4}.*?$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Return the names by which links find the headings of a page, as GitHub makes them."""
    headings = HEADING.findall(re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    broken = []
    for link in LINK.findall(CODE.sub("", page.read_text())):
        if re.match(r"https?://|mailto:", link):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


def test_pages_of_docs_are_linked_from_the_readme_or_a_page_that_it_links():
    """A page that no link leads to is not found."""
    linked = {ROOT / "README.md"}
    for _ in range(3):
        for page in list(linked):
            names = (link.partition("#")[0] for link in LINK.findall(page.read_text()))
            linked |= {(page.parent / name).resolve() for name in names if name.endswith(".md")}
    assert set((ROOT / "docs").rglob("*.md")) <= linked


def test_a_broken_link_is_found(tmp_path):
    (tmp_path / "page.md").write_text(
        "# A: first, try\n[gone](gone.md), [here](#a-first-try), [no](#b), `[code](x.md)`\n"
    )
    with pytest.raises(AssertionError, match=r"gone\.md.*#b"):
        test_links_lead_somewhere(tmp_path / "page.md")
