"""Commands that are loaded when they are called: their parameters, the layout of the help, and how they run.

The program knows each command by name and by one line of help. Its options are loaded when it is called, its body after
the options have been parsed: so help and usage errors need none of the packages that the work needs. A class of options
(`_declaration.py`) becomes parameters of click, and its docstring the help.

A value that is not accepted is an error of one line that names the option, as all other errors are.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import os
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING
from importlib import import_module
from importlib.util import resolve_name
from typing import Any, NamedTuple, get_origin, get_type_hints

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from superhosts.cli._completion import completed
from superhosts.cli._declaration import Opt, declared, option_name, read_value
from superhosts.cli._values import nearest, toml_text
from superhosts.core.notices import as_warning
from superhosts.core.times import local_times
from superhosts.errors import UsageError
from superhosts.jit.ahead import set_command
from superhosts.output.console import announce_compiling, show_tracebacks, tell, use_log_format
from superhosts.output.streams import silence_stdout

SETTINGS = "Settings of the configuration file"
ALL = "superhosts.help-all"  # in the context, if the whole help is wanted
EXAMPLES = 4  # on the first screen
OF_KUBERNETES = re.compile(r"(SERVICE|PORT)(_|$)")  # what it adds to SUPERHOSTS_HUB_ for a service superhosts-hub


class Option(click.Option):
    each: Opt
    label: str  # its name in messages: --window
    key: str  # its name in a configuration file: window
    takes_many: bool


class Argument(click.Argument):
    each: Opt
    label: str  # INPUT
    key: str  # inputs
    takes_many: bool
    help: str
    is_flag = hidden = False


def parameters_of(options: type) -> list[click.Parameter]:
    """Return the parameters of a class of options. Settings of the configuration file are hidden ones."""
    kinds, known = get_type_hints(options), declared(options)
    return [_parameter(name, each, kinds[name], each.setting and "config" in known) for name, each in known.items()]


def _parameter(name: str, each: Opt, kind: Any, hidden: bool) -> Option | Argument:
    """Return a parameter of click that reads and completes its value as it is declared."""

    def read(ctx: click.Context, parameter: click.Parameter, value: Any) -> Any:
        try:
            found = read_value(each, kind, value)
        except UsageError as error:
            raise click.BadParameter(str(error), ctx, parameter) from None
        return each.callback(ctx, found) if each.callback else found

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return completed(each.metavar, each.offers, ctx, incomplete)

    about: dict[str, Any] = {"required": True} if each.default is MISSING else {"default": each.default}
    about |= {"callback": read, "is_eager": each.callback is not None}
    is_flag, takes_many = kind is bool, get_origin(kind) is list
    if not is_flag:
        about |= {"type": click.UNPROCESSED, "metavar": each.metavar, "shell_complete": complete}
    made: Option | Argument
    if each.is_argument:
        made = Argument([name], nargs=-1 if takes_many else 1, **about)
        made.help, made.label, made.key = each.help, each.metavar.rstrip("."), name
    else:
        label = option_name(name, each)
        names = [name, label, *filter(None, [each.short])]
        made = Option(names, help=each.help, is_flag=is_flag, multiple=takes_many, hidden=hidden, **about)
        made.label, made.key = label, label.removeprefix("--")
    made.each, made.takes_many = each, takes_many
    return made


def default_of(parameter: Any) -> str:
    """Return the default of an option as a person would write it; nothing if it has none."""
    shown, value = parameter.each.shown, parameter.each.default
    if isinstance(shown, str):
        return shown
    if not shown or value in (MISSING, None, "", False, []):
        return ""
    values = value if isinstance(value, list) else [value]
    return ", ".join(f"{each:g}" if isinstance(each, float) else str(each) for each in values)


def panels_of(command: Any) -> dict[str, list[Any]]:
    """Return the arguments and options of a command by the heading under which they are shown; its settings last."""
    panels: dict[str, list[Any]] = {"Arguments": [], "Options": []}
    settings = []
    for each in command.params:
        if each.hidden:
            settings.append(each)
            continue
        panel = "Arguments" if isinstance(each, click.Argument) else each.each.panel or "Options"
        panels.setdefault(panel, []).append(each)
    panels[SETTINGS] = settings
    return {panel: members for panel, members in panels.items() if members}


# The help


def fill_paragraphs(text: str) -> str:
    """Return help whose paragraphs are one line each; indented lines, such as examples, stay as they are."""
    return re.sub(r"(?<!\n)\n(?=\S)", " ", re.sub(r"\n{3,}", "\n\n", inspect.cleandoc(text)))


def _write_text(formatter: click.HelpFormatter, text: str) -> None:
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()))
        filled = textwrap.fill(line, formatter.width, break_on_hyphens=False, break_long_words=False)
        formatter.write(f"{line if indent else filled}\n")


def _write_rows(formatter: click.HelpFormatter, title: str, rows: Sequence[tuple[str, str]]) -> None:
    """Write names with what they mean beside them, and a heading above."""
    heading = f"{title}:"
    formatter.write(f"\n{heading if 'NO_COLOR' in os.environ else click.style(heading, bold=True)}\n")
    formatter.indent()
    formatter.write_dl(rows)
    formatter.dedent()


def _row(parameter: Any, *, brief: bool = False) -> tuple[str, str]:
    """Return how an option is written, and what it does. `brief`: its first sentence, without the default."""
    if isinstance(parameter, click.Argument):
        written = str(parameter.metavar)
    else:
        names = ", ".join(sorted(parameter.opts, key=len))
        written = names if parameter.is_flag else f"{names} {parameter.metavar}"
    if brief:
        return written, parameter.each.brief or re.split(r"(?<=[.)])(?= [A-Z])", parameter.help)[0]
    default = default_of(parameter)
    note = "  [required]" if parameter.required else f"  [default: {default}]" if default else ""
    return written, f"{getattr(parameter, 'help', '')}{note}"


def _show_all(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        ctx.meta[ALL] = True
        click.echo(ctx.get_help())
        ctx.exit()


# Commands


def _way_out(ctx: click.Context, parameter: Any) -> str:
    """Return what to write instead of an option that became a setting."""
    key, value = parameter.key, ctx.params[parameter.name]
    variable = f"{ctx.auto_envvar_prefix}_{parameter.name.upper()}"
    line = f"{key} = {toml_text(value)}"
    return f"--{key} becomes a setting: write {line} under [{ctx.info_name}] of the --config file, or set {variable}"


def _refusal(ctx: click.Context, parameter: Any, problem: str) -> str:
    """Return why a value is refused, by the name under which it was given: of the option, or of a variable."""
    name = getattr(parameter, "label", parameter.name)
    if ctx.get_parameter_source(parameter.name) is ParameterSource.ENVIRONMENT:
        name = f"{ctx.auto_envvar_prefix}_{parameter.name.upper()}"
        if not os.environ.get(name):  # so an older name gave it
            name = parameter.envvar
    if getattr(parameter, "is_flag", False):  # from a variable; click lists its words for both, the empty one first
        problem = "must be true or false"
    return f"{name}: {problem}"


class Entry(NamedTuple):
    """Where a command is: `module:name` of the class of its options and of its body, and one line of help."""

    options: str
    body: str
    help: str


class Command(click.Command):
    """A command with its options. Its body is loaded when it runs."""

    params: list[Any]  # options and arguments as above

    def __init__(self, name: str, entry: Entry) -> None:
        self.options: type = _load(entry.options)
        self._entry = entry
        self.args: list[str] = []  # as they were given
        help = fill_paragraphs(f"{entry.help}\n\n    {self.options.__doc__}")  # indented like the rest of a docstring
        super().__init__(name, params=parameters_of(self.options), help=help)
        self._renamed = {each.each.old: each for each in self.params if each.each.old}
        self._renames: list[str] = []  # of options that are given by a name of the last release
        self.first = getattr(self.options, "first", ())

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        more = [click.Option(["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_show_all)]
        return [*super().get_params(ctx), *(more if self.first else [])]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; a value that is not accepted is an error of one line."""
        self.args = list(args)
        for number, (name, equals, value) in enumerate(each.partition("=") for each in args):
            if name in self._renamed:
                self._note_rename(name, self._renamed[name].label)
                args[number] = f"{self._renamed[name].label}{equals}{value}"
        for old, each in self._renamed.items():
            each.envvar = f"{ctx.auto_envvar_prefix}_{old.lstrip('-').replace('-', '_').upper()}"
            if os.environ.get(each.envvar):
                self._note_rename(each.envvar, f"{ctx.auto_envvar_prefix}_{each.name.upper()}")
        try:
            return super().parse_args(ctx, args)
        except click.BadParameter as error:
            if error.param is None or not error.message:  # a missing argument: click shows the usage line
                raise
            raise UsageError(_refusal(ctx, error.param, error.message)) from None

    def _note_rename(self, old: str, new: str) -> None:
        self._renames.append(f"{old} is called {new} now; the old name goes with the next release")

    def parse(
        self, args: Sequence[str], parent: click.Context | None = None, values: dict[str, Any] | None = None
    ) -> Any:
        """Return the options that arguments, a configuration file and the environment give now, or raise UsageError.

        `values` stand for those of a file.
        """
        try:
            with self.make_context(self.name, list(args), parent, default_map=values) as ctx:
                return self.options(**ctx.params)
        except click.UsageError as error:
            raise UsageError(error.format_message()) from None

    def invoke(self, ctx: click.Context) -> None:
        _run(self._entry, self.options(**ctx.params), [*self.outdated(ctx), *self._misspelled(ctx)])

    def outdated(self, ctx: click.Context) -> list[str]:
        """Return what to write instead of the options that were given and are on their way out."""
        hidden = [each for each in self.params if each.hidden and each.each.outdated]
        given = [each for each in hidden if ctx.get_parameter_source(str(each.name)) is ParameterSource.COMMANDLINE]
        return [*self._renames, *(_way_out(ctx, each) for each in given)]

    def _misspelled(self, ctx: click.Context) -> Iterator[str]:
        """Yield what is wrong with variables that begin like those of this command and name none of its options."""
        prefix, command = f"{ctx.auto_envvar_prefix}_", ctx.command_path.partition(" ")[2]
        known = [str(each.name).upper() for each in self.get_params(ctx) if isinstance(each, click.Option)]
        old = [each.envvar for each in self.params]
        for variable in sorted(each for each, value in os.environ.items() if each.startswith(prefix) and value):
            name = variable.removeprefix(prefix)
            if name in known or variable in old or OF_KUBERNETES.match(name):
                continue
            near = nearest(name, known)
            way = f"is it {prefix}{near}?" if near else f"superhosts {command} --help lists them"
            yield f"{variable}: {command} has no such option; {way}"

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        arguments = [each for each in self.params if isinstance(each, click.Argument)]
        return ["[OPTIONS]", *(str(each.metavar) if each.required else f"[{each.metavar}]" for each in arguments)]

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_usage(ctx, formatter)
        if self.first and not ctx.meta.get(ALL):
            self._write_first_screen(formatter)
            return
        _write_text(formatter, f"\n{self.help}")
        for panel, members in panels_of(self).items():
            if panel == SETTINGS:
                _write_text(
                    formatter, "\nMore settings are in the file of --config: superhosts config init - lists them"
                )
                continue
            rows = [_row(each) for each in members]
            if panel == "Options":
                rows.append(("-h, --help", "Show this message and exit."))
            _write_rows(formatter, panel, rows)

    def _write_first_screen(self, formatter: click.HelpFormatter) -> None:
        """Write what most people need: one sentence, some options in few words, and examples."""
        paragraphs = str(self.help).split("\n\n")
        _write_text(formatter, f"\n{paragraphs[0]}")
        named = {each.name: each for each in self.params}
        _write_rows(formatter, "Options", [_row(named[name], brief=True) for name in self.first])
        examples = next(each for each in paragraphs if each.startswith("Example"))
        _write_text(formatter, "\n" + "\n".join(examples.splitlines()[: 1 + EXAMPLES]))
        count = sum(isinstance(each, click.Option) and not each.hidden for each in self.params)
        _write_text(formatter, f"\nAll {count} options: superhosts {self.name} --help-all")


def options_now() -> Any:
    """Return the options of the command that runs as they are now. Raise UsageError if they are wrong by now."""
    ctx = click.get_current_context()
    assert isinstance(ctx.command, Command)
    return ctx.command.parse(ctx.command.args, ctx.parent)


class Group(click.Group):
    """The program, or a group of its commands. A name of two words is a command in a group."""

    def __init__(self, name: str, entries: Mapping[str, Entry], groups: Mapping[str, str], **more: Any) -> None:
        super().__init__(name, no_args_is_help=True, **more)
        self._entries, self._groups = entries, groups
        self._path = ""

    def _known(self) -> dict[str, str]:
        """Return the commands and groups in this one, and their help."""
        own = [words.removeprefix(self._path) for words in self._entries if words.startswith(self._path)]
        names = dict.fromkeys(words.split()[0] for words in own)
        return {name: self._groups.get(name) or self._entries[f"{self._path}{name}"].help for name in names}

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self._known())

    def get_command(self, ctx: Any, cmd_name: str) -> click.Command | None:
        words = f"{self._path}{cmd_name}"
        if words in self._entries:
            return Command(cmd_name, self._entries[words])
        if words not in self._groups:
            return None
        group = Group(cmd_name, self._entries, self._groups, help=self._groups[words])
        group._path = f"{words} "
        return group

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, known = args[0], self._known()
        if name not in known and not ctx.resilient_parsing:  # click would suggest only commands that are loaded
            near = nearest(name, known)
            raise click.UsageError(f"No such command {name!r}.{f' Did you mean {near!r}?' if near else ''}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[CompletionItem]:
        found = [(name, help) for name, help in self._known().items() if name.startswith(incomplete)]
        return [CompletionItem(name, help=help) for name, help in found] + click.Command.shell_complete(
            self, ctx, incomplete
        )

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_usage(ctx, formatter)
        _write_text(formatter, f"\n{self.help}")
        options = [(", ".join(sorted(each.opts, key=len)), getattr(each, "help", "")) for each in self.get_params(ctx)]
        _write_rows(formatter, "Options", options)
        commands = [(name, help.partition("\n")[0]) for name, help in self._known().items()]
        _write_rows(formatter, "Commands", commands)
        if self.epilog:
            _write_text(formatter, f"\n{self.epilog}")


PACKAGE = "superhosts.cli"  # to which names with a leading dot are relative


def _load(place: str) -> Any:
    module, _, name = place.partition(":")
    if resolve_name(module, PACKAGE) not in sys.modules:
        with _collecting_nothing(), _one_blas_thread():
            import_module(module, PACKAGE)
    return getattr(import_module(module, PACKAGE), name)


@contextlib.contextmanager
def _collecting_nothing() -> Iterator[None]:
    """Load modules without the garbage collector: they are not garbage, and examining them takes a tenth of a second.

    `freeze` hides them from later collections, too.
    """
    collected_before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collected_before:
            gc.enable()


@contextlib.contextmanager
def _one_blas_thread() -> Iterator[None]:
    """Let NumPy's OpenBLAS start no thread for each core: they spin for a tenth of a second, and get no work here.

    Programs that this one starts get the variable as it was.
    """
    name = "OPENBLAS_NUM_THREADS"
    if name in os.environ:
        yield
        return
    os.environ[name] = "1"
    try:
        yield
    finally:
        del os.environ[name]


def _run(entry: Entry, options: Any, remarks: Sequence[str] = ()) -> None:
    """Load and run the body. It ends without an error if the reader of its output has gone."""
    with contextlib.ExitStack() as around:
        use_log_format(getattr(options, "log_format", "text"))
        show_tracebacks(getattr(options, "verbose", False))
        for each in remarks:
            tell(as_warning(each))
        set_command(entry.body.partition(":")[2])
        announce_compiling(quiet=getattr(options, "quiet", False))
        around.enter_context(local_times(getattr(options, "local_time", False)))
        for make_context in getattr(options, "around", ()):  # entered before the body is loaded, which takes a second
            around.enter_context(make_context())
        try:
            _load(entry.body)(options)
            sys.stdout.flush()
        except BrokenPipeError:  # caught here: click would exit with status 1
            silence_stdout()
