"""The command line: words in, options for the rooms below, lines and exit status out.

Read the table `COMMANDS` below first: it names each command's class of options, in a file of its family in `usage/`,
and its body, in a file of its own here. Both are loaded when the command is called (`_program.py`), the body after the
options have been parsed, so `superhosts --help` reads only this table. Modules whose names begin with an underscore are
shared by commands: `_options.py` has every option that several commands have, `_values.py` reads their values,
`_config.py` the configuration file, `_settings.py` turns options into what the pipeline takes.
"""

from __future__ import annotations

import atexit
import errno
import gc
import sys
import warnings
from typing import Annotated, Any

import typer

from superhosts import __version__
from superhosts.cli._program import Entry, Group, add_commands
from superhosts.core.notices import as_warning
from superhosts.core.text import speaking_options
from superhosts.errors import OutputError, SuperhostsError
from superhosts.jit.compilation import tell_seconds
from superhosts.output.console import OUT_OF_MEMORY, say, say_error, show_tracebacks, tell, use_log_format
from superhosts.output.streams import flush_stderr, flush_stdout, open_streams, silence_stdout, stdout_error

STORAGE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
COMMANDS = {  # in the order of the help; the text is the first line of the help of each
    "scan": Entry(
        ".usage.traffic:Scan",
        ".scan:scan",
        "Find the super hosts of captures and tables: hosts that talk to many distinct peers within a window.",
    ),
    "watch": Entry(
        ".usage.traffic:Watch",
        ".watch:watch",
        "Watch a network interface on this machine: super hosts of the open window and of the last ones, live.",
    ),
    "top": Entry(
        ".usage.traffic:Top",
        ".top:top",
        "Look at super hosts live in the terminal: of a hub or watch, a folder of sketches, or an interface.",
    ),
    "rows": Entry(
        ".usage.traffic:Rows",
        ".rows:rows",
        "Read rows from standard input and write super hosts as rows: for ClickHouse and for pipes.",
    ),
    "hosts": Entry(
        ".usage.sketches:Hosts",
        ".hosts:hosts",
        "Ask saved sketches again: another threshold, a longer window, more sites.",
    ),
    "web": Entry(
        ".usage.sketches:Web",
        ".web:web",
        "Show a folder of saved sketches in the browser: super hosts over time, one host's past, other thresholds.",
    ),
    "explain": Entry(
        ".usage.sketches:Explain",
        ".explain:explain",
        "Explain one host: its number of peers with the interval, its columns and how full they are.",
    ),
    "merge": Entry(
        ".usage.sketches:Merge",
        ".merge:merge",
        "Merge sketches exactly: the result is that of one stream of all their traffic, repeats counted once.",
    ),
    "plan": Entry(
        ".usage.lab:Plan",
        ".plan:plan",
        "Plan a cube: the best geometry for a memory, or the least memory for an error, and what to expect of it.",
    ),
    "calibrate": Entry(
        ".usage.lab:Calibrate",
        ".calibrate:calibrate",
        "Compare the cube with the exact answer on your own traffic, and say how much memory it needs.",
    ),
    "compare": Entry(
        ".usage.lab:Compare",
        ".compare:compare",
        "Run every detector over the same traffic and score it against the exact answer.",
    ),
    "synth": Entry(
        ".usage.lab:Synth",
        ".synth:synth",
        "Make synthetic backbone traffic, and its exact answer beside it.",
    ),
    "demo": Entry(
        ".usage.lab:Demo",
        ".demo:demo",
        "See it work: write a synthetic capture with known super hosts, scan it, show the result beside the truth.",
    ),
    "edge": Entry(
        ".usage.fleet:Edge",
        ".edge:edge",
        "Watch traffic at one place and send the sketch of every window to a hub.",
    ),
    "hub": Entry(
        ".usage.fleet:Hub",
        ".hub:hub",
        "Merge the sketches of all edges, window by window, and report the super hosts of the whole network.",
    ),
    "site enroll": Entry(
        ".usage.fleet:Enroll",
        ".site:enroll_site",
        "Make the key of a site, or replace it, and print the token with which its edge joins.",
    ),
    "site rotate": Entry(
        ".usage.fleet:Rotate",
        ".site:rotate_site",
        "Give an enrolled site a new key, and print its new token.",
    ),
    "site revoke": Entry(
        ".usage.fleet:Revoke",
        ".site:revoke_site",
        "Revoke the key of a site: the hub turns its edge away.",
    ),
    "site list": Entry(
        ".usage.fleet:SiteList",
        ".site:show_sites",
        "List the sites of a hub: their keys, when they were last heard, how far they are, and what is wrong there.",
    ),
    "backup": Entry(
        ".usage.fleet:Backup",
        ".backup:backup",
        "Copy the state of a hub to a tar file, also while the hub runs.",
    ),
    "key new": Entry(
        ".usage.setup:KeyNew",
        ".key:new_key",
        "Make a key file that only you can read, and print the fingerprint of the key.",
    ),
    "key show": Entry(
        ".usage.setup:KeyShow",
        ".key:show_key",
        "Print the fingerprint of the key in use, or of a key file, and where it comes from; never the key itself.",
    ),
    "alerts list": Entry(
        ".usage.setup:AlertsList",
        ".alerts:list_alerts",
        "List alerts: open ones, or with --all also those that were closed.",
    ),
    "alerts show": Entry(
        ".usage.setup:AlertsShow",
        ".alerts:show_alert",
        "Show one alert, or those of a host.",
    ),
    "alerts mute": Entry(
        ".usage.setup:AlertsMute",
        ".alerts:mute_host",
        "Want no alert of a host or prefix for some time. An alert that is open is closed with the next window.",
    ),
    "alerts export": Entry(
        ".usage.setup:AlertsExport",
        ".alerts:export_alerts",
        "Write all alerts, open and closed, as JSON Lines.",
    ),
    "config init": Entry(
        ".usage.setup:ConfigInit",
        ".config:init_config",
        "Write a configuration file to begin with: every option with its help, commented out.",
    ),
    "config check": Entry(
        ".usage.setup:ConfigCheck",
        ".config:check_config",
        "Check a configuration file: every key, every value and every rule, for all commands.",
    ),
    "config show": Entry(
        ".usage.setup:ConfigShow",
        ".config:show_config",
        "Show the value that each option of a command has with a file, and where it comes from.",
    ),
    "batch": Entry(
        ".usage.fleet:Batch",
        ".batch:batch",
        "Find the super hosts of many captures on a Dask cluster: the same sketches as one scan over all of them.",
    ),
    "bench": Entry(
        ".usage.lab:Bench",
        ".bench:bench",
        "Measure this machine: update, restore, merge and save, with the error beside the time.",
    ),
    "doctor": Entry(
        ".usage.setup:Doctor",
        ".doctor:doctor",
        "Check this installation: versions, memory, compiled code, GPUs and optional packages.",
    ),
}
GROUPS = {  # commands of two words, by the first
    "alerts": """Look at the alerts that a run keeps (--alerts FILE), and mute hosts.

Example: superhosts alerts list alerts.sqlite
""",
    "config": """Write, check and show the configuration file of scan, watch, edge and hub.

Example: superhosts config check superhosts.toml
""",
    "site": """Enroll, rotate, revoke and list the sites of a hub.

Example: superhosts site enroll ams
""",
    "key": """Make keys of sketches, and show which one is in use.

Example: superhosts key show
""",
}


DESCRIPTION = (
    "Find hosts that talk to very many distinct peers: scanners, worms, DDoS victims, resolvers, busy servers."
)
FIRST_STEPS = "Start with: superhosts demo\n\nThen: superhosts scan trace.pcap --inner 10.0.0.0/8"


class Program(Group):
    """All commands, each loaded when it is called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        add_commands(self, COMMANDS, GROUPS)


app = typer.Typer(
    name="superhosts",
    cls=Program,
    help=DESCRIPTION,
    epilog=FIRST_STEPS,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "SUPERHOSTS"},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"superhosts {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, allow_from_autoenv=False, help="Print the version."
        ),
    ] = False,
) -> None: ...


def main() -> None:
    """Run the command line; every foreseeable error becomes one line and an exit status."""
    atexit.register(gc.freeze)  # The last collection, of everything that is loaded, would take a third of a second.
    open_streams()
    show_tracebacks(False)
    use_log_format("text")  # until the options of a command say otherwise
    warnings.showwarning = lambda message, *_: tell(as_warning(str(message)))
    try:
        try:
            with speaking_options():
                app(prog_name="superhosts")  # also as python -m superhosts, so that completion finds its variable
        finally:
            flush_stdout()
    except SuperhostsError as error:
        say_error(error)
        sys.exit(error.exit_status)
    except OSError as error:
        if error.filename is not None or error.errno not in STORAGE_ERRORS:  # Errors of other files have a name.
            raise
        silence_stdout()
        say_error(stdout_error(error))
        sys.exit(OutputError.exit_status)
    except KeyboardInterrupt:
        say("superhosts: interrupted")
        sys.exit(130)
    except MemoryError:
        say_error(OUT_OF_MEMORY)
        sys.exit(2)
    finally:
        tell_seconds()
        flush_stderr()
