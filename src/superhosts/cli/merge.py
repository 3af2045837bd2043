"""`superhosts merge`: one sketch of several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from superhosts.cli.output import KeyFile, read_key, say


def merge(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE.cube...", help="Sketches of other sites or windows, same key and geometry."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE.cube", help="Where to write the union.")],
    key_file: KeyFile = None,
) -> None:
    """Merge sketches exactly: the result is that of one stream of all their traffic, repeats counted once.

    Example: superhosts merge ams.cube fra.cube -o all.cube
    """
    from superhosts.cli.hosts import merge_named
    from superhosts.detectors.sketch import load

    key = read_key(key_file)
    whole = load(files[0], key=key)
    for path in files[1:]:
        merge_named(whole, load(path, key=key), path)
    whole.save(output)
    say(f"{output}: {len(files)} sketches, sites {', '.join(sorted(whole.sites)) or 'unnamed'}")
