"""How commands are built: in groups of options, loaded when they are called, and every option spelled once."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from commands import Run, parsed_commands
from superhosts import cli
from superhosts.cli import COMMANDS
from superhosts.cli._declaration import declared, option_name
from superhosts.cli._options import DETECTORS as NAMED
from superhosts.cli._options import MERGED_BY_BATCH, MERGED_BY_HUBS
from superhosts.cli._program import default_of
from superhosts.cli._values import parse_threshold
from superhosts.detectors.columnsketch import ColumnSketch
from superhosts.detectors.registry import DETECTORS, MERGED
from superhosts.lab.rivals import RIVALS
from superhosts.pipeline.settings import Settings

FOLDER = Path(cli.__file__).parent

# Imports of our own modules inside functions, and why each may be there.
LATE_IMPORTS = {
    ("web.py", "superhosts.ui.web.server"): "needs optional packages, which only --web asks for",
    ("_link.py", "superhosts.fleet.nats.send"): "needs optional packages; links by files do without them",
    ("hub.py", "superhosts.fleet.nats.receive"): "the same",
    ("hub.py", "superhosts.fleet.nats.broker"): "the same",
    ("demo.py", "superhosts.fleet.nats.broker"): "the same",
    ("scan.py", "superhosts.cli._alerts"): "a scan without alerts does not wait for them",
    ("_settings.py", "superhosts.lab.scan"): "a scan with a cube does not wait for the lab",
    ("doctor.py", None): "a package that is missing or broken fails its own check, and no other",
}

# Options that mean something else in one command, and why they keep their name there.
OWN_MEANING = {
    ("merge", "output"): "the result of merge is a sketch, not rows",
    ("compare", "detector"): "several detectors, as this is what is compared",
    ("compare", "memory"): "several sizes, over which errors are drawn",
    ("synth", "window"): "the traffic has no length of its own, so `all` says nothing",
    ("edge", "window"): "the traffic has no end, so `all` says nothing",
    ("watch", "window"): "the same",
    ("top", "window"): "the same",
    ("hub", "window"): "what is refused if it differs; by default nothing is",
    ("hub", "slide"): "the length of what edges send, by default whatever they send",
    ("hosts", "window"): "windows that are merged into longer ones",
    ("rows", "format"): "formats of ClickHouse, by its names",
    ("alerts acknowledge", "by"): "who says so; there are no hosts to be found",
    ("alerts note", "by"): "the same",
    ("alerts mute", "by"): "the same",
    ("web", "web"): "the dashboard is what the command is for, so it has a default",
    ("hosts", "site"): "the sites of sketches that are there, of which several may be wanted",
}

# Options of other commands that a help names.
ELSEWHERE = {
    ("edge", "to", "--from"): "of the hub",
    ("site enroll", "site", "--site"): "of the edge",
    ("site revoke", "site", "--site"): "of the edge",
    ("site rotate", "site", "--site"): "of the edge",
}


def load(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module, "superhosts.cli"), name)


def option_classes() -> dict[str, type]:
    return {name: load(entry.options) for name, entry in COMMANDS.items()}


def test_imports_stand_at_the_top() -> None:
    found = []
    for path in sorted(FOLDER.rglob("*.py")):
        functions = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.FunctionDef)]
        for function, inner in ((each, inner) for each in functions for inner in ast.walk(each)):
            late = [inner.module or ""] if isinstance(inner, ast.ImportFrom) else []
            late += [each.name for each in inner.names] if isinstance(inner, ast.Import) else []
            for module in late:
                allowed = (path.name, module) in LATE_IMPORTS or (path.name, None) in LATE_IMPORTS
                if module.startswith("superhosts") and not allowed:
                    found.append(f"{path.name}: {function.name} imports {module}")
    assert found == []


def test_every_file_is_a_command_or_begins_with_an_underscore() -> None:
    bodies = {f"{entry.body.partition(':')[0][1:]}.py" for entry in COMMANDS.values()}
    assert {path.name for path in FOLDER.glob("*.py") if not path.name.startswith("_")} == bodies
    usage = {f"{entry.options.partition(':')[0].rpartition('.')[2]}.py" for entry in COMMANDS.values()}
    assert {path.name for path in (FOLDER / "usage").glob("*.py") if not path.name.startswith("_")} == usage


def test_an_option_is_the_same_in_all_commands() -> None:
    found: dict[str, dict[Any, list[str]]] = defaultdict(lambda: defaultdict(list))
    meant: dict[str, set[str]] = defaultdict(set)  # what a name stands for, in all commands
    for name, options in option_classes().items():
        for option, each in declared(options).items():
            meant[option_name(option, each)] |= set() if each.is_argument else {option}
            if (name, option) not in OWN_MEANING and not each.is_argument:
                kind = str(get_type_hints(options)[option] | None)  # a default of None is no other type
                found[option][each.name, each.short, kind, each.metavar, each.check, each.callback].append(name)
    assert len(found) > 50
    assert {name: list(ways.values()) for name, ways in found.items() if len(ways) > 1} == {}
    assert {name: fields for name, fields in meant.items() if len(fields) > 1} == {}
    windows = [declared(options)["window"] for options in option_classes().values() if "window" in declared(options)]
    assert {(each.name, each.short, each.metavar) for each in windows} == {("", "-w", "DURATION")}


def test_options_have_the_defaults_of_the_settings() -> None:
    settings = Settings()
    for name, each in declared(load(COMMANDS["scan"].options)).items():
        # A file needs a name of a site, and "auto" is never a detector of settings.
        if each.default is not None and name not in ("site", "detector") and hasattr(settings, name):
            default = getattr(settings, name)
            assert each.default == (list(default) if isinstance(default, tuple) else default), name


def test_a_command_has_few_options_and_a_first_screen(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("scan", "watch", "edge", "hub"):
        params = [each for each in parsed_commands()[name].params if each.param_type_name == "option"]
        assert sum(not each.hidden for each in params) <= (36 if name in ("scan", "watch") else 35), name
        first, whole = (run(name, option).out for option in ("--help", "--help-all"))
        assert len(first.splitlines()) <= 40, name
        assert all(option in whole for each in params if not each.hidden for option in each.opts)
        assert not any(
            f" {option} " in whole.partition("\nOptions:")[2] for each in params if each.hidden for option in each.opts
        )


def test_a_setting_and_an_old_name_still_work_with_a_warning(run, tmp_path, monkeypatch) -> None:
    said = run("scan", tmp_path / "none", "--special", "keep", "--allow", "10.0.0.1", "--allow", "10.0.0.2").err
    for line in ('special = "keep" under [scan]', 'allow = ["10.0.0.1", "10.0.0.2"] under [scan]'):
        assert f"warning: --{line.split()[0]} becomes a setting: write {line} of the --config file, or set" in said
    said = run("web", tmp_path / "none", "--listen=:0", "--log-format", "text").err
    assert "warning: --listen is called --web now" in said
    assert "none: no folder of sketches is here" in said
    monkeypatch.setenv("SUPERHOSTS_WEB_LISTEN", "nowhere")
    said = run("web", tmp_path / "none").err
    assert "'nowhere' is not an address to listen at" in said
    assert "none: no folder of sketches is here" in run("web", tmp_path / "none", "--web", ":0").err
    monkeypatch.setenv("SUPERHOSTS_WEB_LISTEN", ":0")
    said = run("web", tmp_path / "none").err
    assert "SUPERHOSTS_WEB_LISTEN is called SUPERHOSTS_WEB_WEB now" in said


def test_a_variable_that_names_no_option_of_the_command_is_told(run, tmp_path, monkeypatch) -> None:
    """Empty ones do not count, nor those of other commands and those that Kubernetes makes of a service `web`."""
    right = ("WEB_LABELS", "WEB_PORT", "WEB_PORT_80_TCP", "WEB_SERVICE_HOST", "SCAN_WINDW", "WEBB_TOP", "KEY")
    for name in (*right, "WEB_LABLES", "WEB_FOLDER", "WEB_WIDTH"):
        monkeypatch.setenv(f"SUPERHOSTS_{name}", str(tmp_path))
    monkeypatch.setenv("SUPERHOSTS_WEB_WIDTH", "")
    said = run("web", tmp_path / "none", "--log-format", "text").err
    assert re.findall("warning: (SUPERHOSTS_.*)", said) == [
        "SUPERHOSTS_WEB_FOLDER: web has no such option; superhosts web --help lists them",
        "SUPERHOSTS_WEB_LABLES: web has no such option; is it SUPERHOSTS_WEB_LABELS?",
    ]
    monkeypatch.setenv("SUPERHOSTS_SITE_LIST_STAT", "x")  # a command of two words
    said = run("site", "list", "--state", tmp_path).err
    assert "SUPERHOSTS_SITE_LIST_STAT: site list has no such option; is it SUPERHOSTS_SITE_LIST_STATE?" in said


def test_no_two_options_of_a_command_share_a_name() -> None:
    for name, command in parsed_commands().items():
        names = [word for parameter in command.params for word in parameter.opts]
        assert len(names) == len(set(names)), name


def test_the_help_of_an_option_names_options_that_the_command_has() -> None:
    missing = set()
    for name, command in parsed_commands().items():
        own = {word for parameter in command.params if not parameter.hidden for word in parameter.opts}
        for parameter in command.params:
            text = f"{parameter.help} {default_of(parameter)}"
            missing |= {
                (name, parameter.name, word) for word in re.findall("--[a-z][a-z0-9-]*", text) if word not in own
            }
    assert missing == set(ELSEWHERE)


def test_the_help_names_every_detector() -> None:
    hubs = {name for name, kind in DETECTORS.items() if issubclass(kind, ColumnSketch)}
    for names, meant in ((NAMED, {*DETECTORS, *RIVALS}), (MERGED_BY_BATCH, set(MERGED)), (MERGED_BY_HUBS, hubs)):
        assert set(names) == meant


def test_the_options_of_no_command_need_a_compiler() -> None:
    code = """
import sys
from superhosts.cli import COMMANDS
from superhosts.cli._program import Command
for words, entry in COMMANDS.items():
    Command(words, entry)
print({"numba", "numpy", "pyarrow", "zstandard", "rich", "nats", "dask"} & set(sys.modules))
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert ended.stdout == "set()\n"


def test_the_list_of_commands_loads_none_of_them() -> None:
    code = """
import sys
from superhosts.cli import main
sys.argv[1:] = ["--help"]
try:
    main()
finally:
    print("LOADED", [name for name in sys.modules if name.startswith("superhosts.cli.") and "._" not in name])
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert ended.stdout.endswith("LOADED []\n")


# Thresholds and lists, as users write them

WITH_THRESHOLD = [
    *("scan", "watch", "top", "rows"),
    *("hosts", "report", "web", "plan", "calibrate", "compare", "edge", "hub", "batch", "alerts learn"),
]
ARGUMENTS = {
    "watch": ["-"],
    "top": ["live:eth0"],
    "web": ["archive"],
    "report": ["archive"],
    "batch": ["x.pcap", "--save", "x"],
    "scan": ["x.pcap"],
    "hosts": ["x.cube"],
    "calibrate": ["x.pcap"],
    "alerts learn": ["x.sqlite", "archive"],
}


@pytest.mark.parametrize(
    ("text", "value"), [("1024", 1024), ("1k", 1000), ("1.5k", 1500), ("1e3", 1000), ("2.5", 2.5), (1024, 1024)]
)
def test_thresholds(text: str | float, value: float) -> None:
    assert parse_threshold(text) == value


def test_a_threshold_reads_the_same_everywhere() -> None:
    commands = parsed_commands()
    having = [name for name, command in commands.items() if "threshold" in {each.name for each in command.params}]
    assert sorted(having) == sorted(WITH_THRESHOLD)
    for command in WITH_THRESHOLD:
        for option in ("-t", "--threshold"):
            context = commands[command].make_context(command, [*ARGUMENTS.get(command, []), option, "2k"])
            assert context.params["threshold"] == 2000


@pytest.mark.parametrize("command", ["scan", "edge", "batch"])
def test_directions_and_sides_with_commas_or_repeated(command: str) -> None:
    parsed = parsed_commands()[command]
    one = ["--direction", "in, out", "--watch", "inner,outer"]
    other = ["--direction", "in", "--direction", "out", "--watch", "inner", "--watch", "outer"]
    for words in (one, other):
        parameters = parsed.make_context(command, [*ARGUMENTS.get(command, []), *words]).params
        assert (parameters["direction"], parameters["watch"]) == (["in", "out"], ["inner", "outer"])
