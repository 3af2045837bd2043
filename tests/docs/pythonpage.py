"""Run the snippets of docs/guides/python.md and of the README, and write what they print.

    python tests/docs/pythonpage.py     # runs all snippets and writes their output again; read the difference

Every section (## heading) runs in a process of its own, from top to bottom in one namespace, in a folder that holds the
inputs of `prepare`. A block of text after a block of Python is what that block prints; … stands for any text, and
blocks without one print nothing. A comment `<!-- needs NAME … -->` above a block names packages without which the
section is not run; `<!-- not run: WHY -->` leaves one block out.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
PAGES = (ROOT / "docs" / "guides" / "python.md", ROOT / "README.md")
CAPTURES = ROOT / "tests" / "first_hour" / "captures"
SNIPPET = re.compile(
    r"(?:^<!-- (?P<mark>needs [\w ]+|not run: [^\n]*) -->\n+)?"
    r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<shown>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
# Runs the snippets of a section, given as JSON on standard input; prints a mark after what each of them prints.
RUNNER = """
import json, sys
page, snippets = json.load(sys.stdin)
space = {"__name__": "__main__"}
for number, (line, code) in enumerate(snippets):
    exec(compile("\\n" * (line - 1) + code, page, "exec"), space)
    print(f"\\x1e{number}\\x1e", end="", flush=True)
"""


class Snippet(NamedTuple):
    """A block of code, the line on which it begins, and what the page says that it prints."""

    line: int
    code: str
    shown: str
    span: tuple[int, int]


class Section(NamedTuple):
    page: str
    title: str
    snippets: list[Snippet]
    needs: list[str]

    @property
    def missing(self) -> list[str]:
        return [name for name in self.needs if importlib.util.find_spec(name) is None]


def sections(text: str, page: str = "page.md") -> Iterator[Section]:
    starts = [match.start() for match in re.finditer(r"^## ", text, re.MULTILINE)]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        title = text[start + 3 : text.index("\n", start)]
        snippets, needs = [], []
        for match in SNIPPET.finditer(text, start, end):
            mark = match["mark"] or ""
            if mark.startswith("needs"):
                needs += mark.split()[1:]
            elif mark:
                continue
            line = text.count("\n", 0, match.start("code")) + 1
            snippets.append(Snippet(line, match["code"], match["shown"] or "", match.span()))
        if snippets:
            yield Section(page, title, snippets, needs)


def prepare(folder: Path) -> None:
    for path in CAPTURES.glob("*.pcap.gz"):
        shutil.copy(path, folder)


def run(section: Section, folder: Path) -> list[str]:
    """Run the snippets of a section. Return what each of them prints. Raise AssertionError if one fails."""
    prepare(folder)
    paths = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": paths, "XDG_CONFIG_HOME": str(folder / "none"), "COLUMNS": "120"}
    environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment.pop("SUPERHOSTS_KEY", None)
    warnings = "default" if section.needs else "error"  # Other packages warn of each other's versions.
    ended = subprocess.run(
        [sys.executable, "-W", warnings, "-c", RUNNER],
        input=json.dumps([section.page, [(snippet.line, snippet.code) for snippet in section.snippets]]),
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    printed = re.split("\x1e\\d+\x1e", ended.stdout)[:-1]
    return [re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE) for text in printed]


def is_as_shown(printed: str, shown: str) -> bool:
    pattern = ".*?".join(map(re.escape, shown.rstrip("\n").split("…")))
    return re.fullmatch(pattern, printed.rstrip("\n"), re.DOTALL) is not None


def rewritten(text: str) -> str:
    changes: list[tuple[Snippet, str]] = []
    for section in sections(text):
        if section.missing:
            print(f"{section.title}: not run without {', '.join(section.missing)}", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory() as folder:
            changes += zip(section.snippets, run(section, Path(folder)), strict=True)
    for snippet, printed in reversed(changes):
        if not is_as_shown(printed, snippet.shown):
            block = text[slice(*snippet.span)]
            begin = block[: block.index("```\n", block.index("```python")) + 4]
            output = f"\n```text\n{printed.rstrip()}\n```\n" if printed.strip() else ""
            text = text[: snippet.span[0]] + begin + output + text[snippet.span[1] :]
    return text


if __name__ == "__main__":
    for each in PAGES:
        each.write_text(rewritten(each.read_text()))
