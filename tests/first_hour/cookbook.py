"""The questions of the first hour: run their commands, and write docs/cookbook.md.

    python tests/first_hour/cookbook.py     # runs all commands and writes their answers again

`questions.md` is the source: headings, text, and commands in indented lines that begin with $, each followed by its
answer. Every question runs in a folder of its own that has the captures of `captures/`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
QUESTIONS, PAGE = HERE / "questions.md", HERE.parent.parent / "docs" / "cookbook.md"
INDENT, PROMPT = "    ", "    $ "
TIMES = re.compile(r"\b\d[\d,.]*(?: [kM])?( (?:s|ms|(?:packets|records|rows)/s)\b)")  # they differ from run to run
PROGRESS = re.compile(r"^ *\d+ %, .* left\n?", re.MULTILINE)  # of a command that takes long, on a busy machine
SECONDS = re.compile(r'("seconds": )[\d.e-]+')
FINGERPRINT = re.compile(r"\b[0-9a-f]{16}\b")  # of a key that is new each time
HEAD = """<!-- Made from tests/first_hour/questions.md: edit that, then run python tests/first_hour/cookbook.py. -->

# Cookbook

The questions of the first hour, each with a command and its answer. The captures are in
[tests/first_hour/captures](../tests/first_hour/captures), so you can try all of it.
"""


class Question(NamedTuple):
    """A heading and its lines."""

    title: str
    lines: list[str]

    @property
    def anchor(self) -> str:
        """The name by which a link finds the heading."""
        return re.sub(r"[^\w -]", "", self.title.lower()).replace(" ", "-")

    def answered(self, folder: Path) -> list[str]:
        """Return the lines with the answers that the commands give in this folder."""
        answered: list[str] = []
        inside = False  # an answer, which may have empty lines
        for line in self.lines:
            if line.startswith(PROMPT):
                answered += [line, *run(line.removeprefix(PROMPT), folder)]
                inside = True
            elif not inside:
                answered.append(line)
            elif line and not line.startswith(INDENT):
                answered += ["", line]
                inside = False
        return answered


def read_questions() -> list[Question]:
    parts = re.split(r"^## ", QUESTIONS.read_text("utf-8"), flags=re.MULTILINE)[1:]
    return [Question(title, lines) for title, *lines in (part.rstrip().split("\n") for part in parts)]


def run(command: str, folder: Path) -> list[str]:
    """Run a command as in a shell; return what it says, with times left out that differ from run to run."""
    environment = {**os.environ, "HOME": str(folder), "TZ": "UTC", "COLUMNS": "100", "LC_ALL": "C.UTF-8"}
    environment["SUPERHOSTS_KEY"] = "cookbook"  # estimates depend on the key
    shell = f'superhosts() {{ "{sys.executable}" -m superhosts "$@"; }}; {command}'
    ended = subprocess.run(
        ["bash", "-c", shell],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    text = TIMES.sub(r"…\1", PROGRESS.sub("", ended.stdout.decode()).rstrip())
    text = FINGERPRINT.sub("…", SECONDS.sub(r"\1…", text))
    return [(INDENT + line).rstrip() for line in text.splitlines()]


def fill(folder: Path) -> Path:
    """Put the captures into a folder."""
    shutil.copytree(HERE / "captures", folder, dirs_exist_ok=True)
    return folder


def script(questions: list[Question]) -> str:
    return "\n\n".join("\n".join([f"## {question.title}", *question.lines]) for question in questions) + "\n"


def page(questions: list[Question]) -> str:
    contents = "\n".join(f"- [{question.title}](#{question.anchor})" for question in questions)
    return f"{HEAD}\n{contents}\n\n{script(questions)}"


def main() -> None:
    questions = []
    for question in read_questions():
        with tempfile.TemporaryDirectory() as folder:
            questions.append(Question(question.title, question.answered(fill(Path(folder)))))
    QUESTIONS.write_text(script(questions), "utf-8")
    PAGE.write_text(page(questions), "utf-8")


if __name__ == "__main__":
    main()
