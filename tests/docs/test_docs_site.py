"""The documentation builds as a site: offline, every link right, every page as its Markdown means it; pictures too."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt

from places import DOCS, ROOT, load_module

pytestmark = pytest.mark.slow

PAGES = sorted(DOCS.rglob("*.md"))
COUNTED = ("pre", "table", "li", "ol", "ul", "h2", "h3", "img")


builder = load_module(DOCS / "build.py")


def need_zensical() -> None:
    if importlib.util.find_spec("zensical") is None:
        assert not os.environ.get("SUPERHOSTS_NEED_DOCS"), "zensical is not installed"
        pytest.skip("needs zensical: pip install 'superhosts[docs]'")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need_zensical()
    folder = tmp_path_factory.mktemp("docs") / "built"
    command = [sys.executable, str(DOCS / "build.py"), str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return folder / "site"


class Article(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self._inside = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "article":
            self._inside += 1
        elif self._inside and tag in COUNTED:
            self.counts[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        self._inside -= tag == "article"


def test_every_page_has_the_elements_that_its_markdown_has(site: Path) -> None:
    """zensical reads Markdown as Python-Markdown does; the pages are written as CommonMark."""
    for page in PAGES:
        article = Article()
        article.feed((site / page.relative_to(DOCS)).with_suffix(".html").read_text("utf-8"))
        meant = MarkdownIt("commonmark").enable("table").render(page.read_text("utf-8"))
        expected = Counter(tag for tag in re.findall(r"<(\w+)", meant) if tag in COUNTED)
        assert article.counts == expected, page


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loaded = re.compile(r"<(?:script|img|iframe|source)[^>]*\bsrc=\"?(?:https?:)?//|<link[^>]*\bhref=\"?(?:https?:)?//")
    pages = list(site.rglob("*.html"))
    assert len(pages) > len(PAGES)
    assert [path for path in pages if loaded.search(path.read_text("utf-8"))] == []
    styles = [path for path in site.rglob("*.css") if re.search(r"url\([\"']?(?:https?:)?//", path.read_text("utf-8"))]
    assert styles == []


def test_files_of_the_project_that_pages_link_to_are_there(site: Path) -> None:
    assert (site / "project" / "deploy" / "prometheus" / "rules.yml").exists()
    assert "superhosts-hub.service" in (site / "project" / "deploy" / "systemd" / "index.html").read_text("utf-8")
    assert (site / "project" / "tests" / "first_hour" / "captures" / "office.pcap.gz").exists()


def test_a_broken_link_fails_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_zensical()
    docs = tmp_path / "docs"
    docs.mkdir()
    shutil.copy(DOCS / "zensical.toml", docs)
    config = (docs / "zensical.toml").read_text("utf-8")
    begin, end = config.index("nav = ["), config.index("\n]\n") + 3
    (docs / "zensical.toml").write_text(
        config[:begin] + config[end:].replace('extra_css = ["site.css"]\n', ""), "utf-8"
    )
    for name, value in (("DOCS", docs), ("ROOT", tmp_path), ("CONFIG", docs / "zensical.toml")):
        monkeypatch.setattr(builder, name, value)
    (docs / "index.md").write_text("# Home\n\n[itself](index.md#home)\n")
    assert (builder.build(tmp_path / "good") / "index.html").exists()
    for link in ("gone.md", "index.md#gone"):
        (docs / "index.md").write_text(f"# Home\n\n[gone]({link})\n")
        with pytest.raises(subprocess.CalledProcessError):
            builder.build(tmp_path / "bad")


def test_every_page_is_in_the_navigation() -> None:
    def names(entries: list[Any]) -> list[str]:
        values = [value for entry in entries for value in entry.values()]
        return [name for value in values for name in (names(value) if isinstance(value, list) else [value])]

    listed = names(tomllib.loads((DOCS / "zensical.toml").read_text("utf-8"))["project"]["nav"])
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in PAGES)


def test_lists_and_code_for_python_markdown() -> None:
    made = builder.for_python_markdown("1. one\n   more\n\n       superhosts scan x\n\n- two\n  more\n")
    assert made == "1. one\n    more\n\n    ```bash\n    superhosts scan x\n    ```\n\n- two\n    more\n"
    made = builder.for_python_markdown("A:\n\n    $ ls\n    a\n\n    b\n\n<!-- x -->\n\n    c\n")
    assert made == "A:\n\n```console\n$ ls\na\n\nb\n```\n\n<!-- x -->\n\n```text\nc\n```\n"


def test_pictures_are_what_the_program_draws() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", "import draw, json; print(json.dumps(draw.pictures()))"],
        cwd=DOCS / "images",
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{DOCS / 'images'}", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    for name, drawn in json.loads(ended.stdout).items():
        assert (DOCS / "images" / name).read_text("utf-8") == drawn, "python docs/images/draw.py draws it anew"


def test_the_overview_is_what_its_script_draws() -> None:
    drawn = runpy.run_path(str(DOCS / "images" / "overview.py"))["picture"]()
    assert (DOCS / "images" / "overview.svg").read_text(encoding="utf-8") == drawn
    root = ElementTree.fromstring(drawn)
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    places = [(float(each.attrib["x"]), float(each.attrib["y"])) for each in root.iter() if "x" in each.attrib]
    assert len(places) > 300
    assert all(0 <= x < width and 0 <= y < height for x, y in places)


def test_the_and_of_the_overview_follows_from_its_columns() -> None:
    script = runpy.run_path(str(DOCS / "images" / "overview.py"))
    columns = [array[column] for array, column in zip(script["fill_cube"](), script["HOT"], strict=True)]
    own = [{row for row, is_own in column.items() if is_own} for column in columns]
    assert own[0] == own[1] == own[2]
    assert len(own[0]) == script["BUSY_ROWS"]
    assert all(len(column) > len(own[0]) for column in columns[:2])  # Neighbours have set bits there, too,
    assert set.intersection(*map(set, columns)) >= own[0]  # which the AND drops for the most part.
