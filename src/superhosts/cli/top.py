"""`superhosts top`: the live view in the terminal."""

from __future__ import annotations

import sys

import typer

from superhosts.cli._console import fail_with, say, use_log
from superhosts.cli._topfeeds import LiveFeed, Messages, open_feed, settings_of
from superhosts.cli.usage.top import Top
from superhosts.errors import UsageError
from superhosts.jit.compilation import before_compiling
from superhosts.ui.top import load_app

NO_TERMINAL = (
    "top needs a terminal for {}; without one, superhosts watch writes windows as they close, and superhosts hosts "
    "answers from saved sketches"
)


def top(options: Top) -> None:
    """Show the screen until somebody quits; then exit with the status of the first error."""
    settings_of(options)  # A wrong value is told wherever this runs.
    check_terminal()
    make_app = load_app()
    feed = open_feed(options)
    messages = Messages()
    app = make_app(feed, messages=messages.latest)
    if isinstance(feed, LiveFeed):
        feed.on_end = lambda: app.leave_if_empty()
    use_log(messages)
    before_compiling(lambda: messages.tell("compiling for this machine: up to a minute …"))
    try:
        app.run(mouse=False)
    finally:
        feed.close()
        use_log(None)
        for line in messages.lines:
            say(line)
    if app.return_code:
        raise typer.Exit(app.return_code)
    if isinstance(feed, LiveFeed):
        fail_with(feed.errors.found)


def check_terminal() -> None:
    """Raise UsageError if the screen cannot be shown, or its keys cannot be read."""
    streams = {"standard input": sys.stdin, "standard output": sys.stdout, "standard error": sys.stderr}
    for name, stream in streams.items():
        if stream is None or not stream.isatty():
            raise UsageError(NO_TERMINAL.format(name))
