"""The command line: words in, options for the rooms below, lines and exit status out.

Read `HELP` below first, the list of commands. Each has a class of options in a file of its family in `usage/`, and a
body in a file of its own here. Both are loaded when the command is called (`_program.py`), the body after the options
have been parsed, so `superhosts --help` reads only this list. Modules whose names begin with an underscore are shared:
`_declaration.py` says how an option is declared, `_options.py` has those that several commands have, `_values.py` reads
values, `_config.py` the configuration file, `_settings.py` makes what the pipeline takes.
"""

from __future__ import annotations

import atexit
import errno
import gc
import sys
import warnings
from collections.abc import Callable

import click

from superhosts import __version__
from superhosts.cli._completion import install_script, show_script
from superhosts.cli._program import Entry, Group
from superhosts.core.notices import as_warning
from superhosts.core.text import speaking_options
from superhosts.errors import OutputError, SuperhostsError
from superhosts.jit.compilation import tell_seconds
from superhosts.output.console import OUT_OF_MEMORY, say, say_error, show_tracebacks, tell, use_log_format
from superhosts.output.streams import flush_stderr, flush_stdout, open_streams, silence_stdout, stdout_error

STORAGE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
FAMILIES = {  # the files of `usage/`, and the commands, or groups of them, whose options each has
    "traffic": ("scan", "watch", "top", "rows"),
    "sketches": ("hosts", "report", "web", "explain", "merge"),
    "lab": ("plan", "calibrate", "compare", "synth", "demo", "bench"),
    "fleet": ("edge", "hub", "site", "backup", "batch"),
    "setup": ("key", "alerts", "acts", "config", "doctor"),
}
HELP = {  # in the order of the help: the first line of the help of each; its class in `usage/` has the rest
    "scan": "Find the super hosts of captures and tables: hosts that talk to many distinct peers within a window.",
    "watch": "Watch a network interface on this machine: super hosts of the open window and of the last ones, live.",
    "top": "Look at super hosts live in the terminal: of a hub or watch, a folder of sketches, or an interface.",
    "rows": "Read rows from standard input and write super hosts as rows: for ClickHouse and for pipes.",
    "hosts": "Ask saved sketches again: another threshold, a longer window, more sites.",
    "report": "Report a day of saved sketches, as page or mail: super hosts that are new, risen, persistent or gone.",
    "web": "Show a folder of saved sketches in the browser: super hosts over time, one host's past, other thresholds.",
    "explain": "Explain one host: its number of peers with the interval, its columns and how full they are.",
    "merge": "Merge sketches exactly: the result is that of one stream of all their traffic, repeats counted once.",
    "plan": "Plan a cube: the best geometry for a memory, or the least memory for an error, and what to expect of it.",
    "calibrate": "Compare the cube with the exact answer on your own traffic, and say how much memory it needs.",
    "compare": "Run every detector over the same traffic and score it against the exact answer.",
    "synth": "Make synthetic backbone traffic, and its exact answer beside it.",
    "demo": "See it work: write a synthetic capture with known super hosts, scan it, show the result beside the truth.",
    "edge": "Watch traffic at one place and send the sketch of every window to a hub.",
    "hub": "Merge the sketches of all edges, window by window, and report the super hosts of the whole network.",
    "site enroll": "Make the key of a site, or replace it, and print the token with which its edge joins.",
    "site rotate": "Give an enrolled site a new key, and print its new token.",
    "site revoke": "Revoke the key of a site: the hub turns its edge away.",
    "site list": "List the sites of a hub: their keys, when they were last heard, how far they are, and what is wrong "
    "there.",
    "backup": "Copy the state of a hub to a tar file, also while the hub runs.",
    "key new": "Make a key file that only you can read, and print the fingerprint of the key.",
    "key show": "Print the fingerprint of the key in use, or of a key file, and where it comes from; never the key "
    "itself.",
    "alerts list": "List alerts: open ones, or with --all also those that were closed.",
    "alerts show": "Show one alert, or those of a host.",
    "alerts acknowledge": "Say that somebody looks at alerts. They stay open, and lists show them behind the others.",
    "alerts note": "Give an alert an owner or a note, which its lists and its next messages have.",
    "alerts mute": "Want no alert of a host or prefix for some time. An alert that is open is closed with the next "
    "window.",
    "alerts learn": "Learn from saved sketches how many peers hosts usually have in each hour of the week.",
    "alerts export": "Write all alerts, open and closed, as JSON Lines.",
    "acts list": "List what is in force against hosts, or with --audit everything that was done.",
    "acts withdraw": "Withdraw what is in force against a host, or against all.",
    "config init": "Write a configuration file to begin with: every option with its help, commented out.",
    "config check": "Check a configuration file: every key, every value and every rule, for all commands.",
    "config show": "Show the value that each option of a command has with a file, and where it comes from.",
    "batch": "Find the super hosts of many captures on a Dask cluster: the same sketches as one scan over all of them.",
    "bench": "Measure this machine: update, restore, merge and save, with the error beside the time.",
    "doctor": "Check this installation: versions, memory, compiled code, GPUs and optional packages.",
}


def _entry(words: str) -> Entry:
    """Return where a command is: `site list` has the options `SiteList` and the body `site_list` in `site.py`."""
    first, family = words.split()[0], next(name for name, commands in FAMILIES.items() if words.split()[0] in commands)
    name = words.title().replace(" ", "")
    return Entry(f".usage.{family}:{name}", f".{first}:{words.replace(' ', '_')}", HELP[words])


COMMANDS = {words: _entry(words) for words in HELP}
GROUPS = {  # commands of two words, by the first
    "alerts": "Look at the alerts that a run keeps (--alerts FILE), acknowledge them, and mute hosts.\n\n"
    "Example: superhosts alerts list alerts.sqlite\n",
    "acts": "Look at what a run does against hosts (--alert-to nft:… and others), and withdraw it.\n\n"
    "Example: superhosts acts list alerts.acts.sqlite\n",
    "config": "Write, check and show the configuration file of scan, watch, edge and hub.\n\n"
    "Example: superhosts config check superhosts.toml\n",
    "site": "Enroll, rotate, revoke and list the sites of a hub.\n\nExample: superhosts site enroll ams\n",
    "key": "Make keys of sketches, and show which one is in use.\n\nExample: superhosts key show\n",
}
DESCRIPTION = (
    "Find hosts that talk to very many distinct peers: scanners, worms, DDoS victims, resolvers, busy servers."
)
FIRST_STEPS = "Start with: superhosts demo\n\nThen: superhosts scan trace.pcap --inner 10.0.0.0/8"


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        click.echo(f"superhosts {__version__}")
        ctx.exit()


def _at_once(name: str, callback: Callable[..., None], help: str) -> click.Option:
    """Return an option that does its work alone, instead of a command."""
    return click.Option(
        [name], is_flag=True, is_eager=True, expose_value=False, allow_from_autoenv=False, callback=callback, help=help
    )


app = Group(
    "superhosts",
    COMMANDS,
    GROUPS,
    help=DESCRIPTION,
    epilog=FIRST_STEPS,
    params=[
        _at_once("--version", _version, "Print the version."),
        _at_once("--install-completion", install_script, "Make your shell complete commands, options and values."),
        _at_once("--show-completion", show_script, "Print the script that does so."),
    ],
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "SUPERHOSTS",
        "max_content_width": 100,
    },
)


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
