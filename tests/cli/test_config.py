"""The configuration file: options of the command line, the source of each value, and errors that name the key."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from commands import Run
from first_hour.office import FOLDER
from places import DOCS
from superhosts.cli._values import toml_text
from superhosts.sources.livecapture import load_libpcap

OFFICE = FOLDER / "office.pcap.gz"


def written(folder: Path, text: str) -> Path:
    path = folder / "superhosts.toml"
    path.write_text(text)
    return path


def test_the_command_line_counts_more_than_the_environment_and_that_more_than_the_file(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def peers(*words: object) -> list[int]:
        ended = run("scan", *words)
        assert ended.status == 0, ended.err
        return [row["peers"] for row in ended.rows]

    file = written(
        tmp_path,
        f"""
        threshold = 3000
        inner = "private"
        [scan]
        inputs = ["{OFFICE}"]
        threshold = 2500
        json = true
        watch = ["inner"]
        [hub]
        state = "elsewhere"
        """,
    )
    assert peers("--config", file) == [2600]
    monkeypatch.setenv("SUPERHOSTS_SCAN_CONFIG", str(file))
    assert peers() == [2600]
    monkeypatch.setenv("SUPERHOSTS_SCAN_THRESHOLD", "1800")
    assert peers() == [2600, 1900]
    assert peers("-t", "2700") == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("window = '1x'", "window = '1x': '1x' is not a duration"),
        ("[scan]\ntreshold = 5", "scan.treshold: no such option; is it threshold?"),
        ("[scan]\nthreshold = 'many'", "scan.threshold = 'many': 'many' is not a number"),
        ("[hub]\nsave = 'x'", "hub.save: no such option"),
        ('[scan]\nkey-file = "a\\u0000b"', "scan.key-file = 'a\\x00b': a null character is no text; leave it out"),
        ("[scan]\njson = 'yes'", "scan.json = 'yes': must be true or false"),
        ("[scan]\nexact = true", 'scan.exact = true: must be one of "on", "off"'),
        ("[edge]\nsite = ['a', 'b']", "edge.site = ['a', 'b']: takes one value, not a list"),
        ("[edge]\nsite = true", "edge.site = true: must be text or a number"),
        ("[edge]\njoin = ['shjoin1.secret']", "edge.join = (a secret): takes one value, not a list"),
        ("scan = 5", "scan: must be a table"),
        ("rule = 5", "rule: must be tables"),
        ("a = [", "not TOML"),
        ("[[rule]]\nhours = 'late'", "rule 1: hours 'late'"),
        ("[[rule]]\nprefixes = ['10.0.0.0/8']", "rule 1: prefixes"),
        ("[[rule]]\n[[rule]]", "rule: two rules are called many-peers; rule names must be unique"),
        ("config = 'other.toml'", "config: no such option"),
        ("threshold = -5", "[scan]: --threshold -5: must be a number of peers"),
        ("[hub]\nwindow = '5m'\nslide = '70s'", "[hub]: --slide 70s: the window (5m) has to be a multiple"),
        ("inner = ['10.0.0.0/33']\n[hub]", "[scan]: --inner: '10.0.0.0/33' is not a prefix"),
        ("[watch]\nexclude = ['nowhere']", "[watch]: --exclude: 'nowhere' is not a prefix"),
        ("[hub]\noutput = ['rows.parquet']", "[hub]: --output rows.parquet: Parquet cannot be appended to"),
        ("[edge]\noutput = ['what://x']", "[edge]: --output what://x: unknown scheme"),
        ("[scan]\nalert-to = ['syslog://x']", "[scan]: --alert-to needs --alerts FILE"),
        (
            "[scan]\nallow = ['10.0.0.0/33']",
            "[scan]: --allow, line 1: '10.0.0.0/33' is neither an address nor a prefix",
        ),
        ("[watch]\nweb-trust-proxy = ['10.0.0.1']", "[watch]: --web-trust-proxy: only with --web"),
        # What is missing only because something else is wrong is not said.
        ("[hub]\nwindow = '1x'\nslide = '30s'", "hub.window = '1x': '1x' is not a duration"),
        ("[edge]\noutput = ['x.parquet']\nthreshold = 5", "[edge]: --output x.parquet: Parquet cannot be appended to"),
        ("[edge]\nto = 'a'\nnats = 'b'", "[edge]: --to and --nats: choose one way to the hub"),
        ("[edge]\nthreshold = 5", "[edge]: --threshold and --top: only with --output"),
        ("[edge]\nsite = 'a b'", "[edge]: --site 'a b': "),
        ("[hub]\nsites = ['ams', 'a/b']", "[hub]: --sites 'a/b': "),
    ],
)
def test_what_is_wrong_is_named(run: Run, tmp_path: Path, text: str, said: str) -> None:
    file = written(tmp_path, text)
    ended = run("config", "check", file)
    assert ended.status == 2
    (line,) = ended.err.splitlines()
    assert re.sub(r"line \d+: ", "", line, count=1).startswith(f"superhosts: {file}: {said}")


def test_all_mistakes_are_found_at_once_with_their_lines(run: Run, tmp_path: Path) -> None:
    file = written(
        tmp_path,
        """inner = ["10.0.0.0/33"]
windw = "1m"
# a comment
window = "1x"
threshold = 5000
[scan]
json = true
csv = true
alerts = "a"
alert-to = ["what://x"]
output = ["rows.txt"]

[hub]
archive-sites = true
quota-bytes = "0"
[sketch]
a = 1
[[rule]]
threshold = "x"
nname = "y"
[[rule]]
name = "low"
threshold = 400
[[rule]]
name = "scans"
patterns = ["horizontal scan"]
[[rule]]
name = "refused"
direction = "unanswered"
""",
    )
    lines = run("config", "check", file).err.splitlines()
    said = [line.removeprefix(f"superhosts: {file}: ") for line in lines]
    for start in (
        "line 1: [scan]: --inner: ",
        "line 2: windw: no such option; is it window?",
        "line 4: window = '1x': ",
        "line 5: [scan]: --threshold 5000: an alert rule starts at 400 peers",
        "line 7: [scan]: --json and --csv: choose one",
        "line 10: [scan]: --alert-to what://x: ",
        "line 11: [scan]: --output rows.txt: ",
        "line 14: [hub]: --archive-sites needs --archive DIR",
        "line 15: [hub]: --quota-bytes 0: ",
        "line 16: [sketch]: no such table",
        "line 19: rule 1: threshold = 'x': must be a number",
        "line 20: rule 1: nname: no such key",
        "line 24: [scan]: rule scans: patterns need --evidence",
        "line 27: [scan]: rule refused: inner unanswered hosts is not counted",
    ):
        assert [line for line in said if line.startswith(start)], (start, lines)
    assert len(said) == 14


MISTAKES = {  # values that each command refuses: those of a file are all found, each on its line
    "scan": {
        "inner": ["10.0.0.0/33"],
        "exclude": ["nowhere"],
        "watch": ["sideways"],
        "direction": ["up"],
        "special": "maybe",
        "peers": ["friends"],
        "count": "cats",
        "proto": ["tcpp"],
        "port": ["http-x"],
        "window": "1x",
        "threshold": -5,
        "top": 0,
        "detector": "cubee",
        "memory": "1 apple",
        "geometry": "7x7",
        "ipv4-prefix": 33,
        "save": "sketches",
        "site": "a/b",
        "key-file": "missing/key",
        "exact": "perhaps",
        "device": "cuda:x",
        "map": "src",
        "filter": "((",
        "evidence-pairs": 5,
        "counters": "missing/counters",
        "output": ["what://x"],
        "alert-to": ["what://y"],
        "allow": ["@missing/allow"],
        "never-act": ["nothing"],
        "labels": "missing/labels",
        "geo": ["missing/geo"],
    },
    "watch": {
        "metrics": "nowhere",
        "log-format": "xml",
        "refresh": "soon",
        "web-trust-proxy": ["10.0.0.1"],
        "key-file": "missing/key",
        "labels": "missing/labels",
        "output": ["rows.parquet"],
        "slide": "7s",
        "allow": ["10.0.0.0/33"],
        "never-act": ["@missing/hosts"],
        "memory": "1B",
        "site": 'a"b',
        "threshold": -5,
        "tunnels": "none",
        "time": "tea",
        "grace": "later",
        "ipv6-prefix": 129,
        "by": "name",
        "alert-cap": 0,
        "format": "exotic",
        "memory-total": "3 pears",
    },
    "edge": {
        "join": "rubbish",
        "site": "a b",
        "spool-cap": "2 apples",
        "nkey": "missing/nkey",
        "tls-cert": "missing/cert",
        "nats": "http://x",
        "threshold": -5,
        "top": 0,
        "labels": "missing/labels",
        "detector": "exact",
        "memory": "1B",
        "window": "all",
        "evidence-pairs": 7_000_000,
        "metrics": "nowhere",
        "inner": ["10.0.0.0/33"],
        "key-file": "missing/key",
        "ipv4-prefix": 0,
        "peers": ["friends"],
        "slide": "1x",
        "output-wait": "soon",
        "map": "src",
    },
    "hub": {
        "site": "a b",
        "sites": ["x y"],
        "slide": "7s",
        "grace": "later",
        "late": "xyz",
        "listen": "nowhere",
        "broker-cap": "2 pears",
        "quota-bytes": "0",
        "quota-sketches": "0",
        "tls-cert": "missing/cert",
        "archive-sites": True,
        "keep": "99q",
        "nats": "http://x",
        "up": "nats://up",
        "up-nkey": "missing/nkey",
        "spool-cap": "two",
        "threshold": -5,
        "detector": "exact",
        "memory": "1B",
        "metrics": "nowhere",
        "web-trust-proxy": ["10.0.0.1:5"],
        "alert-to": ["syslog://x"],
        "labels": "missing/labels",
        "key-file": "missing/key",
    },
}


@pytest.mark.slow
def test_every_mistake_of_many_in_one_file_is_found(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    right = {"save", "up"}  # which others need
    for command, values in MISTAKES.items():
        unknown = {"filter"} if load_libpcap() is None else set()  # without libpcap no filter is read
        lines = [f"{key} = {toml_text(value)}" for key, value in values.items() if key not in unknown]
        file = written(tmp_path, "\n".join([f"[{command}]", *lines]))
        said = run("config", "check", file).err
        found = {int(number) for number in re.findall(r": line (\d+): ", said)}
        missed = [line for number, line in enumerate(lines, 2) if number not in found and line.split()[0] not in right]
        assert missed == [], (command, said)


def test_a_key_for_all_commands_that_is_wrong_is_named_once(run: Run, tmp_path: Path) -> None:
    file = written(tmp_path, "# all\nlabels = 'none.csv'\nmemory = '1B'\n[scan]\n[watch]\n[hub]\nmemory = '2B'\n")
    lines = [line.removeprefix(f"superhosts: {file}: ") for line in run("config", "check", file).err.splitlines()]
    assert lines[0] == "line 2: [scan], [watch], [hub]: --labels none.csv: cannot be read: No such file or directory"
    assert [line.partition("memory ")[0] for line in lines[1:]] == ["line 3: [scan], [watch]: ", "line 7: [hub]: "]


def test_a_run_refuses_what_the_check_refuses(run: Run, tmp_path: Path) -> None:
    """The same words, whether a file is checked or used; and what a file may hold for a hub alone is all right."""
    for text in ("inner = ['10.0.0.0/33']", "ipv4-prefix = 33", "memory = '1B'", "quiet = true\nverbose = true"):
        file = written(tmp_path, f"[scan]\n{text}\n")
        said = run("scan", OFFICE, "--config", file)
        checked = re.sub(r"superhosts: .*\[scan\]: ", "superhosts: ", run("config", "check", file).err)
        assert (said.status, said.err) == (2, checked)
    assert run("config", "check", written(tmp_path, "output = ['rows']\n[hub]\nsites = ['ams']\n")).status == 0


def test_files_that_cannot_be_read(run: Run, tmp_path: Path) -> None:
    (tmp_path / "noise.toml").write_bytes(b"a = 1\n\xff\xfe")
    for words, said in (
        (["config", "check", tmp_path / "noise.toml"], "noise.toml: not TOML: byte 6 is not valid UTF-8"),
        (["scan", OFFICE, "--config", tmp_path / "missing.toml"], "missing.toml: cannot be read"),
    ):
        ended = run(*words)
        assert (ended.status, said in ended.err) == (2, True)


def test_the_file_to_begin_with_is_right_and_says_nothing(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "new.toml"
    assert run("config", "init", path).status == 0
    assert tomllib.loads(path.read_text()) == {"scan": {}, "watch": {}, "edge": {}, "hub": {}}
    assert "0 values and 0 rules" in run("config", "check", path).err
    again = run("config", "init", path)
    assert (again.status, "--force" in again.err) == (4, True)
    assert run("config", "init", "-").out == path.read_text()


def test_its_values_are_the_defaults(run: Run, tmp_path: Path) -> None:
    """Every line that is commented out, but for those without a default, can be put into force."""
    lines = run("config", "init", "-").out.partition("\n# Rules")[0].splitlines()
    kept = [line.removeprefix("# ") for line in lines if line.startswith("[") or (" = " in line and line[0] == "#")]
    values = "\n".join(line for line in kept if line.startswith("[") or not line.endswith(('= ""', "= []")))
    assert run("config", "check", written(tmp_path, values)).status == 0, values


def test_the_file_to_begin_with_says_every_default(run: Run) -> None:
    whole = run("config", "init", "-").out.partition("\n# Rules")[0]
    table = tomllib.loads(re.sub(r"(?m)^# (?=[a-z0-9-]+ = )", "", whole))
    assert table["scan"]["inputs"] == []
    assert max(map(len, whole.splitlines())) <= 120
    words = " ".join(line.removeprefix("# ") for line in whole.splitlines())
    threshold = "Default of scan, watch: the top 10 of a window and all from 1024 on;"
    assert f"like 1024 or 1k. {threshold}" in words
    assert "cuda:0,1 or auto. device = " in words  # whose value is the default


def test_the_schema_takes_what_the_program_takes(run: Run) -> None:
    schema = json.loads((DOCS / "reference" / "schemas" / "config.schema.json").read_text("utf-8"))
    validator = jsonschema.Draft202012Validator(schema)
    whole = run("config", "init", "-").out.replace("# [[rule]]", "[[rule]]")
    texts = [re.sub(r"(?m)^# (?=[a-z0-9-]+ = )", "", whole)]
    for page in DOCS.rglob("*.md"):
        texts += re.findall(r"```toml\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    assert len(texts) > 2
    keys = re.compile(r"(?m)^([a-z0-9-]+)(?= = )")
    for text in [*texts, *(keys.sub(lambda key: key[0].replace("-", "_"), text) for text in texts)]:
        table = tomllib.loads(text)
        assert [each.message for each in validator.iter_errors(_without_empty(table))] == []
    for wrong in (
        "windw = 1",
        "[scan]\njson = 1",
        "[edge]\nstate = 'x'",
        "[[rule]]\nnname = 1",
        "special = 'x'",
        "memory_total = true",
    ):
        assert not validator.is_valid(tomllib.loads(wrong)), wrong


def _without_empty(table: Any) -> Any:
    """Return a table without the values that stand for none: an empty text is no choice."""
    if isinstance(table, dict):
        return {key: _without_empty(value) for key, value in table.items() if value != ""}
    return [_without_empty(each) for each in table] if isinstance(table, list) else table


def test_values_are_shown_with_their_sources(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, "window = '1m'\n[hub]\nthreshold = 500\n")
    monkeypatch.setenv("SUPERHOSTS_HUB_TOP", "7")
    found = {line.split()[0]: line.split()[1:] for line in run("config", "show", file, "hub").out.splitlines()}
    assert found["threshold"] == ['"500"', "hub.threshold"]
    assert found["top"] == ['"7"', "SUPERHOSTS_HUB_TOP"]
    assert found["keep"] == ['"90d"', "default"]
    assert run("config", "show", file, "demo").status == 2
