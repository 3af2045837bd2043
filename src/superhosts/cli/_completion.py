"""What a shell offers when somebody presses TAB behind an option: its words, usual values, or names from files.

An option declares them (`offers`), has them in its metavar (on|off), or is written in a usual way (SIZE, DURATION). The
shell completes file names for any other. Names in files are looked up when they are asked for, and that never fails: a
shell has no place for an error.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

import click
from click.shell_completion import CompletionItem, get_completion_class

from superhosts.errors import UsageError

DURATIONS = ("90s", "5m", "15m", "1h", "1d")
USUAL = {  # by metavar
    "SIZE": ("16MiB", "64MiB", "128MiB", "512MiB", "1GiB"),
    "DURATION": DURATIONS,
    "DEVICE": ("auto", "cpu", "cuda", "cuda:all"),
    "SHARE": ("0.1%", "1%", "5%"),
    "FAMILY": ("4", "6", "both"),
}

Values = Iterable[str] | str  # or `module:function`, which gets the context and returns them


def usual_values(metavar: str, offers: Values | None) -> Values | None:
    return offers or USUAL.get(metavar) or (metavar.split("|") if "|" in metavar else None)


def completed(metavar: str, offers: Values | None, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return what a shell offers for the value of an option or argument.

    Values of a LIST can be joined by commas, and the last one is completed. Where a FILE is possible as well, a value
    is offered only when its first letter is there; otherwise the shell offers files.
    """
    values = usual_values(metavar, offers)
    given, comma, last = incomplete.rpartition(",") if metavar == "LIST" else ("", "", incomplete)
    files = [CompletionItem(incomplete, type="dir" if metavar == "DIR" else "file")]
    if values is None or (metavar == "FILE" and not last):
        return files
    taken = given.split(",")
    try:
        offered = _looked_up(values, ctx) if isinstance(values, str) else values
    except Exception:  # whatever is wrong with a file: nothing can be offered
        return []
    fitting = [f"{given}{comma}{value}" for value in offered if value.startswith(last) and value not in taken]
    return [CompletionItem(value) for value in fitting] or files


def _looked_up(place: str, ctx: click.Context) -> Iterable[str]:
    """Return what a function finds. It is loaded now: every press of TAB would load what one option needs."""
    module, _, name = place.partition(":")
    found: Iterable[str] = getattr(import_module(module), name)(ctx)
    return found


def script(ctx: click.Context, option: str) -> tuple[str, str]:
    """Return the name of the user's shell and the script that makes it complete."""
    shell = Path(os.environ.get("SHELL", "")).name
    kind = get_completion_class(shell)
    if kind is None:
        raise UsageError(f"{option}: the variable SHELL names {shell or 'no shell'}; bash, zsh and fish can complete")
    name = str(ctx.info_name)
    return shell, kind(ctx.command, {}, name, f"_{name.upper()}_COMPLETE").source()


def show_script(ctx: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        click.echo(script(ctx, option.opts[0])[1])
        ctx.exit()


def install_script(ctx: click.Context, option: click.Parameter, wanted: bool) -> None:
    """Write the script to where the shell finds it, and a line into the shell's own file that reads it."""
    if not wanted or ctx.resilient_parsing:
        return
    (shell, text), name, home = script(ctx, option.opts[0]), str(ctx.info_name), Path.home()
    file, start, line = {
        "bash": (home / f".bash_completions/{name}.sh", home / ".bashrc", f"source '{{}}'  # completes {name}"),
        "zsh": (home / f".zfunc/_{name}", home / ".zshrc", "fpath+=~/.zfunc; autoload -Uz compinit; compinit"),
        "fish": (home / f".config/fish/completions/{name}.fish", None, ""),
    }[shell]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")
    line = line.format(file)
    if start is not None and line not in (start.read_text("utf-8") if start.exists() else ""):
        with start.open("a", encoding="utf-8") as rest:
            rest.write(f"\n{line}\n")
    click.echo(f"{shell} completes {name} in new terminals ({file})")
    ctx.exit()
