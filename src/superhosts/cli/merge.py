"""`superhosts merge`: one sketch of several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from superhosts.cli._outputs import KeyFile, MemoryTotal, fail_with, read_key, say
from superhosts.cli._sketches import find_sketches, merge_named, told


def merge(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE.cube...",
            help="Sketches of other sites or windows, same key and geometry: files, folders, or globs in quotes.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE.cube", help="Where to write the union.")],
    memory_total: MemoryTotal = None,
    key_file: KeyFile = None,
) -> None:
    """Merge sketches exactly: the result is that of one stream of all their traffic, repeats counted once.

    If any file cannot be merged nothing is written, and every such file is named.

    Example: superhosts merge ams.cube fra.cube -o all.cube
    """
    from superhosts.errors import InputError, MergeError, SuperhostsError
    from superhosts.replacing import replaceable
    from superhosts.sketches.bundle import Sketch

    replaceable(output)  # said before the work
    key = read_key(key_file)
    errors: list[SuperhostsError] = []
    paths = find_sketches(files, errors)
    whole = Sketch()
    for path in told(paths):
        try:
            merge_named(whole, path, key, memory_total)
        except (InputError, MergeError) as error:
            errors.append(error)
            say(f"superhosts: {error}")
    if errors:  # a union that lacks something is not written
        say(f"superhosts: {output}: nothing written: what is named above cannot be merged")
        fail_with(errors)
    whole.save(output)
    say(f"{output}: {len(paths)} sketches, sites {', '.join(sorted(whole.sites)) or 'unnamed'}")
