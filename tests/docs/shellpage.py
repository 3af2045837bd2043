"""Run the commands of the pages of docs/, and write what they say.

    python tests/docs/shellpage.py docs/start.md …     # runs the commands and writes their answers again

A command is an indented line that begins with $; the indented lines below it are its answer. Every section (## heading)
runs in a folder of its own that has the captures of tests/first_hour and the logs of `logs.py`. Times that differ from
run to run are left out.

Other blocks of commands are not run, and the page says why: a comment `<!-- not run: WHY -->` holds for the section
that it is in, or for the whole page if it is above the first section.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from markdown_it import MarkdownIt

from docs.logs import write_logs

ROOT = Path(__file__).parent.parent.parent
INDENT, PROMPT = "    ", "    $ "
TIMES = re.compile(r"\b\d[\d,.]*(?: [kM])?( (?:s|ms|(?:packets|records|rows)/s)\b)")
PROGRESS = re.compile(r"^ *\d+ %, .* left\n?", re.MULTILINE)  # of a command that takes long, on a busy machine
SECONDS = re.compile(r'("seconds(?:_compiling)?": )[\d.e-]+')
FINGERPRINT = re.compile(r"\b[0-9a-f]{16}\b")  # of a key that is new each time
NOT_RUN = re.compile(r"^<!-- not run: \S.* -->$", re.MULTILINE)
PROGRAM = re.compile(
    r"(?:sudo |\w+=\S+ )*(?:\S*/)?(?:superhosts|pip|python3?|make|tcpdump|clickhouse|rsync|openssl|mv|cp)\b"
)


def sections(text: str) -> list[str]:
    """Return the parts of a page: what is above the first section, and the sections."""
    return re.split(r"^(?=## )", text, flags=re.MULTILINE)


def has_commands(section: str) -> bool:
    return any(line.startswith(PROMPT) for line in section.splitlines())


def answered(section: str, folder: Path) -> str:
    """Return a section with the answers that its commands give now, in a folder that is filled first."""
    shutil.copytree(ROOT / "tests" / "first_hour" / "captures", folder, dirs_exist_ok=True)
    write_logs(folder)
    lines: list[str] = []
    inside = False  # an answer, which may have empty lines
    for line in section.rstrip("\n").split("\n"):
        if line.startswith(PROMPT):
            lines += [line, *run(line.removeprefix(PROMPT), folder)]
            inside = True
        elif not inside:
            lines.append(line)
        elif line and not line.startswith(INDENT):
            lines += ["", line]
            inside = False
    return "\n".join(lines).rstrip() + "\n"


def run(command: str, folder: Path) -> list[str]:
    """Run a command as in a shell; return what it says."""
    environment = {**os.environ, "HOME": str(folder), "TZ": "UTC", "COLUMNS": "100", "LC_ALL": "C.UTF-8"}
    environment["SUPERHOSTS_KEY"] = "cookbook"  # estimates depend on the key
    shell = f'superhosts() {{ "{sys.executable}" -m superhosts "$@"; }}; {command}'
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    ended = subprocess.run(["bash", "-c", shell], cwd=folder, env=environment, check=False, **streams)
    text = TIMES.sub(r"…\1", PROGRESS.sub("", ended.stdout.decode()).rstrip())
    text = FINGERPRINT.sub("…", SECONDS.sub(r"\1…", text))
    return [(INDENT + line).rstrip() for line in text.splitlines()]


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
    parts = []
    for section in sections(text):
        with tempfile.TemporaryDirectory() as folder:
            parts.append(answered(section, Path(folder)) if has_commands(section) else section.rstrip("\n") + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        page = Path(name)
        page.write_text(rewritten(page.read_text("utf-8")), "utf-8")
