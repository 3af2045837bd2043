"""Run the commands of the pages of docs/, and write what they say.

    python tests/docs/shellpage.py docs/start.md …     # runs the commands and writes their answers again

A command is an indented line that begins with $; the indented lines below it are its answer. Every section (## heading)
runs in a folder of its own that has the captures of the cookbook and the logs of `logs.py`. Times are left out, as in
the cookbook (tests/first_hour/cookbook.py), which has the program that runs a command.

Other blocks of commands are not run, and the page says why: a comment `<!-- not run: WHY -->` holds for the section
that it is in, or for the whole page if it is above the first section.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from markdown_it import MarkdownIt

from docs.logs import write_logs
from first_hour.cookbook import PROMPT, Question, fill

ROOT = Path(__file__).parent.parent.parent
NOT_RUN = re.compile(r"^<!-- not run: \S.* -->$", re.MULTILINE)
PROGRAM = re.compile(
    r"(?:sudo |\w+=\S+ )*(?:\S*/)?(?:superhosts|pip|python3?|make|tcpdump|clickhouse|rsync|openssl|mv|cp)\b"
)


def sections(text: str) -> list[str]:
    """Return the parts of a page: what is above the first section, and the sections."""
    return re.split(r"^(?=## )", text, flags=re.MULTILINE)


def has_commands(section: str) -> bool:
    """Return True if a section has commands that run."""
    return any(line.startswith(PROMPT) for line in section.splitlines())


def answered(section: str, folder: Path) -> str:
    """Return a section with the answers that its commands give now, in a folder that is filled first."""
    write_logs(fill(folder))
    lines = section.rstrip("\n").split("\n")
    return "\n".join(Question("", lines).answered(folder)).rstrip() + "\n"


def unrun(text: str) -> Iterator[str]:
    """Yield the first lines of blocks of commands that are not run, and of which the page does not say why."""
    head, *rest = sections(text)
    if NOT_RUN.search(head):
        return
    for section in (head, *rest):
        if not NOT_RUN.search(section):
            for token in MarkdownIt("commonmark").parse(section):
                first = token.content.split("\n")[0]
                is_code = token.type == "code_block" or (
                    token.type == "fence" and token.info in ("bash", "sh", "console")
                )
                if is_code and PROGRAM.match(first):
                    yield first


def rewritten(text: str) -> str:
    """Return a page with what its commands say now."""
    parts = []
    for section in sections(text):
        with tempfile.TemporaryDirectory() as folder:
            parts.append(answered(section, Path(folder)) if has_commands(section) else section.rstrip("\n") + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        page = Path(name)
        page.write_text(rewritten(page.read_text("utf-8")), "utf-8")
