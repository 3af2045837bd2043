"""The command line: one small file per command. Heavy imports stand inside the commands, so that help comes at once."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer

from superhosts._version import __version__
from superhosts.cli._outputs import say
from superhosts.cli.batch import batch
from superhosts.cli.bench import bench
from superhosts.cli.calibrate import calibrate
from superhosts.cli.compare import compare
from superhosts.cli.demo import demo
from superhosts.cli.doctor import doctor
from superhosts.cli.edge import edge
from superhosts.cli.explain import explain
from superhosts.cli.hosts import hosts
from superhosts.cli.hub import hub
from superhosts.cli.merge import merge
from superhosts.cli.plan import plan
from superhosts.cli.scan import scan
from superhosts.cli.synth import synth
from superhosts.errors import SuperhostsError
from superhosts.reports.streams import open_streams, silence_stdout

app = typer.Typer(
    name="superhosts",
    help="Find hosts that talk to very many distinct peers: scanners, worms, DDoS victims, resolvers, busy servers.",
    epilog="Start with: superhosts demo. Then: superhosts scan trace.pcap --inner 10.0.0.0/8",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _into_pipe(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command end well when the reader of its output goes away: that is the reader's right."""

    @functools.wraps(command)
    def run(**options: Any) -> None:
        try:
            command(**options)
            sys.stdout.flush()
        except BrokenPipeError:  # caught here: typer would make it status 1
            silence_stdout()

    return run


for command in (scan, hosts, explain, merge, plan, calibrate, compare, synth, demo, edge, hub, batch, bench, doctor):
    app.command()(_into_pipe(command))


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"superhosts {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...


def main() -> None:
    """Run the command line; every foreseeable error becomes one line and an exit status."""
    open_streams()
    warnings.showwarning = lambda message, *_: say(f"superhosts: warning: {message}")
    try:
        app()
    except SuperhostsError as error:
        say(f"superhosts: {error}")
        sys.exit(error.exit_status)
    except KeyboardInterrupt:
        say("superhosts: interrupted")
        sys.exit(130)
    except MemoryError:
        say("superhosts: out of memory; take less --memory")
        sys.exit(2)
