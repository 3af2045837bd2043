"""`superhosts merge`: one sketch of several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from superhosts.cli.output import KeyFile, MemoryTotal, fail_with, read_key, say
from superhosts.cli.sketches import find_sketches, merge_named, told


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

    Example: superhosts merge ams.cube fra.cube -o all.cube
    """
    from superhosts.detectors.sketch import Sketch
    from superhosts.errors import InputError
    from superhosts.placing import replaceable

    replaceable(output)  # said before the work
    key = read_key(key_file)
    errors: list[InputError] = []
    paths = find_sketches(files, errors)
    fail_with(errors)  # a union that lacks something is not written
    whole = Sketch()
    for path in told(paths):
        merge_named(whole, path, key, memory_total)
    whole.save(output)
    say(f"{output}: {len(paths)} sketches, sites {', '.join(sorted(whole.sites)) or 'unnamed'}")
