"""`superhosts backup`: a copy of a hub's state."""

from __future__ import annotations

from superhosts.cli.usage.fleet import Backup
from superhosts.core.files import replaceable
from superhosts.core.text import counted
from superhosts.core.units import format_size
from superhosts.errors import OutputError
from superhosts.fleet.backup import save_state
from superhosts.output.console import tell


def backup(options: Backup) -> None:
    if options.file.exists() and not options.force:
        raise OutputError(f"{options.file} exists; --force replaces it")
    target = replaceable(options.file)
    saved = save_state(options.state, target, options.alerts)
    what = f"{counted(saved.windows, 'window')}, {counted(saved.files, 'file')}, {format_size(target.stat().st_size)}"
    tell(f"{options.file}: {what}; keep the sketch key and the archive, too")
