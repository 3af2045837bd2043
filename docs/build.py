"""Build the documentation as a site: `make docs`, or `python docs/build.py [FOLDER]`, which writes FOLDER/site.

The pages are plain Markdown that reads well without the site. Before zensical builds them, copies of them are changed:

| a page has | the site needs |
|---|---|
| links to files of the project outside of docs/ | copies of these files (`project/`), lists of folders |
| lists whose further lines are indented by two or three | four: zensical reads lists as Python-Markdown does |
| commands in indented lines | blocks with a language, for colours and for a button that copies them |
| comments for the tests | nothing |

zensical checks all links and anchors, and a broken one fails the build. Nothing is loaded from other machines, neither
fonts nor scripts, and pages and search work from a disk, too (`site.js`).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from markdown_it import MarkdownIt

DOCS = Path(__file__).parent
ROOT = DOCS.parent
CONFIG = DOCS / "zensical.toml"
WORKERS = "https://unpkg.com/iframe-worker/shim"  # what zensical loads for the search on a disk; site.js does it here
LINK = re.compile(r"(!?\[[^\]\[]*\]\()([^()\s]+)(\))")
CODE = re.compile(r"(^```.*?^```|^ {4}.*?$|`[^`\n]*`)", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"^<!--.*?-->\n+", re.MULTILINE | re.DOTALL)
PROGRAMS = (  # with which a block of commands begins
    "superhosts|pip|python3?|make|git|tcpdump|curl|cp|mv|chgrp|setcap|rsync|openssl|clickhouse|podman|systemctl|journalctl|"
    "apt|zcat|nfdump|kill|mkdir|echo"
)


def build(folder: Path) -> Path:
    """Build the site in a folder, which is emptied first. Raise CalledProcessError if a link is broken."""
    shutil.rmtree(folder, ignore_errors=True)
    stage(folder / "pages")
    shutil.copy(CONFIG, folder)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(folder / CONFIG.name)]
    subprocess.run(command, check=True)
    for page in (folder / "site").rglob("*.html"):
        own = os.path.relpath(folder / "site" / "site.js", page.parent)
        page.write_text(page.read_text("utf-8").replace(WORKERS, own), "utf-8")
    return folder / "site"


def stage(folder: Path) -> None:
    """Copy the pages to a folder, changed as the site needs them, and everything of the project that they link to."""
    waiting = [path for path in DOCS.rglob("*") if path.suffix in (".md", ".css", ".js")]
    done: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path in done:
            continue
        done.add(path)
        target = folder / place(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            inside = sorted(each for each in path.iterdir() if each.name != "__pycache__")
            target.write_text(listing(path, inside), "utf-8")
            waiting += inside
        elif path.suffix == ".md":
            text, linked = relinked(path.read_text("utf-8"), path)
            target.write_text(COMMENT.sub("", for_python_markdown(text)), "utf-8")
            waiting += linked
        else:
            shutil.copyfile(path, target)


def place(path: Path) -> Path:
    """Return where a file of the project is in the site; a folder is the page that lists it."""
    if path.is_relative_to(DOCS) and path.is_file():
        return path.relative_to(DOCS)
    inside = Path("project") / path.relative_to(ROOT)
    return inside / "index.md" if path.is_dir() else inside


def listing(path: Path, inside: list[Path]) -> str:
    """Return a page that lists the files of a folder."""
    lines = [f"- [{each.name}]({each.name + '/index.md' if each.is_dir() else each.name})" for each in inside]
    return f"# {path.relative_to(ROOT)}\n\n" + "\n".join(lines) + "\n"


def relinked(text: str, page: Path) -> tuple[str, list[Path]]:
    """Return a page with links as the site needs them, and what they lead to."""
    linked: list[Path] = []

    def moved(match: re.Match[str]) -> str:
        name, mark, anchor = match[2].partition("#")
        target = Path(os.path.normpath(page.parent / name))
        if re.match(r"[a-z]+:", match[2]) or not name or not target.exists():
            return match[0]
        linked.append(target)
        there = os.path.relpath(place(target), place(page).parent)
        return f"{match[1]}{there}{mark}{anchor}{match[3]}"

    parts = CODE.split(text)
    parts[::2] = [LINK.sub(moved, part) for part in parts[::2]]
    return "".join(parts), linked


def for_python_markdown(text: str) -> str:
    """Return Markdown that means the same to Python-Markdown: lists indented by four, code in fences."""
    lines = text.split("\n")
    more = [0] * len(lines)  # blanks to add to each line
    fences: dict[int, str] = {}  # lines that begin or end a block of code
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.map is None:
            continue
        begin, end = token.map
        if token.type == "list_item_open":
            first = lines[begin].lstrip()
            width = len(first) - len(re.sub(r"^(?:[-*+]|\d+[.)])\s+", "", first))
            for number in range(begin + 1, end):
                more[number] += 4 - width if lines[number].strip() else 0
        elif token.type == "code_block":
            while not lines[end - 1].strip():
                end -= 1
            indent = len(lines[begin]) - len(lines[begin].lstrip()) - 4
            blanks = " " * (indent + more[begin])
            fences[begin] = f"{blanks}```{language(token.content)}"
            fences[end] = f"{blanks}```"
            for number in range(begin, end):
                more[number] -= 4
    written: list[str] = []
    for number, line in enumerate(lines):
        written += [fences[number]] if number in fences else []
        added = more[number]
        written.append(" " * added + line if added >= 0 else line[-added:])
    return "\n".join(written)


def language(code: str) -> str:
    """Return the name by which a block of code is coloured."""
    if code.startswith("$ "):
        return "console"
    return "bash" if re.match(rf"(?:sudo |\w+=\S+\s+)*(?:\S*/)?(?:{PROGRAMS})\b", code) else "text"


if __name__ == "__main__":
    made = build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "docs")
    print(f"{made / 'index.html'}: written")
