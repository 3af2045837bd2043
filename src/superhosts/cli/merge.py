"""`superhosts merge`: one sketch of several."""

from __future__ import annotations

from pathlib import Path

from superhosts.cli._keys import given_key
from superhosts.cli._progress import Progress
from superhosts.cli._sketches import find_sketches
from superhosts.cli.usage.sketches import Merge
from superhosts.core.files import replaceable
from superhosts.core.text import counted
from superhosts.errors import InputError, MergeError, UsageError
from superhosts.output.console import ReportedErrors, fail_with, say
from superhosts.sketch.files import merge_named
from superhosts.sketch.sketch import Sketch


def merge(options: Merge) -> None:
    """Write the union of sketches; nothing if one of them cannot be merged."""
    output = Path(options.output[0])
    if str(output) == "-":
        raise UsageError("--output -: a sketch needs a file; results can go to standard output, with superhosts hosts")
    replaceable(output)  # checked before the work
    key = given_key(options.key_file)
    errors = ReportedErrors()
    paths = find_sketches(options.files, errors.add)
    whole = Sketch()
    with Progress("sketches") as progress:
        for path in progress.over(paths):
            try:
                merge_named(whole, path, key, options.memory_total)
            except (InputError, MergeError) as error:
                errors.add(error)
    if errors.found:  # an incomplete union is not written
        say(f"superhosts: {output}: nothing written: the files named above cannot be merged")
        fail_with(errors.found)
    whole.save(output)
    say(f"{output}: {counted(len(paths), 'sketch', 'sketches')}, sites {', '.join(sorted(whole.sites)) or 'unnamed'}")
