"""`superhosts report`: what changed within a day, from saved sketches: one page, a mail, or text."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from superhosts.cli._keys import given_key
from superhosts.cli._progress import Progress
from superhosts.cli._settings import naming_of
from superhosts.cli._sketches import parse_time
from superhosts.cli.usage.sketches import Report
from superhosts.core.defaults import THRESHOLD
from superhosts.core.files import output_errors, replaceable, replacing
from superhosts.core.pairs import Window
from superhosts.core.text import printable
from superhosts.core.times import DAY
from superhosts.core.units import parse_duration
from superhosts.detectors.arguments import check_threshold
from superhosts.errors import InputError, OutputError, UsageError
from superhosts.output.console import ReportedErrors, fail_with, tell
from superhosts.output.names import Annotator
from superhosts.output.registry import OutputOptions, wanted_addresses
from superhosts.output.senders import PermanentError, TemporaryError, masked
from superhosts.output.senders.mail import Mail
from superhosts.ui.folder import SketchFolder
from superhosts.ui.period import Period, look_at, page, text

LONGEST = 3660 * DAY


def report(options: Report) -> None:
    threshold = float(THRESHOLD) if options.threshold is None else options.threshold
    check_threshold(threshold, "--threshold")
    places = _places(options.output)
    end, length = parse_time("until", options.until) or time.time_ns(), parse_duration(options.last)
    if length > LONGEST:
        raise UsageError(f"--last {options.last}: at most ten years")
    if not options.folder.is_dir():
        raise InputError("no folder of sketches is here", file=str(options.folder))
    errors, names, progress = ReportedErrors(), naming_of(options), Progress("windows")
    with progress:
        period = look_at(
            SketchFolder(options.folder, given_key(options.key_file)),
            Window(end - length, end),
            threshold,
            annotate=Annotator(names, tell).annotated if names else lambda rows: rows,
            on_error=errors.add,
            over=progress.over,
        )
    if options.json or not options.output:
        sys.stdout.write(json.dumps(period.as_json()) + "\n" if options.json else text(period))
    html = page(period)
    for place in places:
        try:
            if isinstance(place, Mail):
                _send(place, period, html)
                continue
            with output_errors(place), replacing(replaceable(place)) as temporary:
                temporary.write_text(html, encoding="utf-8")
        except OutputError as error:  # The other places get it all the same.
            errors.add(error)
    fail_with(errors.found)


def _places(addresses: list[str]) -> list[Path | Mail]:
    """Return the files and mails that are asked for. Raise UsageError for anything else."""
    found: list[Path | Mail] = []
    with OutputOptions(outputs=addresses).naming_option():
        for wanted in wanted_addresses(addresses):
            scheme, mark, _ = wanted.text.partition("://")
            if mark and scheme in ("smtp", "smtps"):
                mail = Mail.open(wanted.text, private=wanted.private)
                assert isinstance(mail, Mail)
                for warning in mail.address.warnings():
                    tell(warning)
                found.append(mail)
            elif not mark and Path(wanted.text).suffix.lower() in (".html", ".htm"):
                found.append(Path(wanted.text))
            else:
                raise UsageError(f"{masked(wanted.text)}: write a name that ends in .html, or smtp://HOST/?to=…")
    return found


def _send(mail: Mail, period: Period, html: str) -> None:
    """Send the report, as text with the page attached. Raise OutputError if that is not possible."""
    where = f" at {', '.join(period.sites)}" if period.sites else ""
    message = mail.message_of(printable(f"{period.headline}{where}"), text(period))
    message.add_attachment(html, subtype="html", filename="superhosts.html")
    try:
        mail.send(message)
    except (TemporaryError, PermanentError) as error:
        raise OutputError(f"{mail.address.shown}: the report is NOT SENT: {error}") from None
