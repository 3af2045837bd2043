"""Commands and snippets of the pages of docs/ run and say what the pages show; a page says why others do not run."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from docs.shellpage import answered, has_commands, rewritten, sections, unrun
from places import DOCS, ROOT
from superhosts.cli.config import config_check
from superhosts.cli.usage.setup import ConfigCheck

pytestmark = pytest.mark.slow

PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
COMMANDS = [(page, part) for page in PAGES for part in sections(page.read_text("utf-8")) if has_commands(part)]
PAGE = """# Page

    $ echo "a b"
    a b

## Not run

<!-- not run: there is no such interface -->

    superhosts scan live:eth0

## Forgotten

    superhosts scan x.pcap
"""


def name_of(value: object) -> str | None:
    if isinstance(value, Path):
        return str(value.relative_to(ROOT))
    return value.split("\n")[0].strip("# ") if isinstance(value, str) else None


@pytest.mark.parametrize(("page", "section"), COMMANDS, ids=name_of)
def test_commands_say_what_the_page_shows(page: Path, section: str, tmp_path: Path) -> None:
    assert answered(section, tmp_path).rstrip() == section.rstrip(), (
        "python tests/docs/shellpage.py PAGE writes it anew"
    )


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "commands.md"], ids=name_of)
def test_a_page_says_why_commands_are_not_run(page: Path) -> None:
    assert list(unrun(page.read_text("utf-8"))) == []


def test_pages_with_commands_that_run() -> None:
    found = [name_of(page) for page, _ in COMMANDS]
    assert {*found} >= {f"docs/{name}.md" for name in ("start", "guides/captures", "guides/logs", "reference/rows")}
    assert found.count("docs/cookbook.md") >= 20


def test_what_is_found(tmp_path: Path) -> None:
    assert list(unrun(PAGE)) == ["superhosts scan x.pcap"]
    assert list(unrun(PAGE.replace("# Page\n", "# Page\n\n<!-- not run: an example -->\n"))) == []
    assert rewritten(PAGE) == PAGE
    assert rewritten(PAGE.replace("    a b\n", "    c\n")) == PAGE
    head = sections(PAGE)[0]
    assert answered(head.replace("a b\n\n", "a\n\n"), tmp_path).rstrip() == head.rstrip()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_of_toml_and_json_are_what_they_say(page: Path, tmp_path: Path) -> None:
    for number, token in enumerate(MarkdownIt("commonmark").parse(page.read_text("utf-8"))):
        if token.type == "fence" and token.info == "json":
            json.loads(token.content)
        elif token.type == "fence" and token.info == "toml":
            assert tomllib.loads(token.content)
            path = tmp_path / f"{number}.toml"
            path.write_text(token.content)
            config_check(ConfigCheck(file=path))
