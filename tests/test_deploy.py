"""What operators copy: units, the container files and what docs/guides/fleet says fit the program as it is."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from commands import parsed_commands
from places import fleet_guide
from superhosts.cli import GROUPS
from superhosts.cli.edge import status_counters
from superhosts.fleet.edge import EdgeCounters
from superhosts.fleet.filelink import FileCounters
from superhosts.fleet.hub import HubCounters
from superhosts.fleet.intake import IntakeCounters
from superhosts.fleet.names import check_site
from superhosts.fleet.nats.assembly import ReceiveCounters
from superhosts.fleet.nats.broker import BrokerCounters
from superhosts.fleet.nats.credentials import Token
from superhosts.fleet.nats.send import SendCounters
from superhosts.fleet.spool import SpoolCounters
from superhosts.pipeline.scan import Counters
from superhosts.ui.endpoint import STALLED, STARTING

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
UNITS = {path.name: path for path in (DEPLOY / "systemd").glob("*.service")}
TIMERS = {path.name: path for path in (DEPLOY / "systemd").glob("*.timer")}
LIVE = ("superhosts-edge-live@.service", "superhosts-watch@.service")  # that capture
ONCE = {"superhosts-enroll@.service", "superhosts-report@.service"}  # that end by themselves
DOC = fleet_guide()
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
EDGES = {name: service for name, service in SERVICES.items() if name not in ("keys", "hub")}
BINARY = "/opt/superhosts/bin/superhosts"
Unit = dict[str, list[str]]


def joined(text: str) -> list[str]:
    return re.sub(r"\\\n\s*", "", text).splitlines()


def read_unit(path: Path) -> Unit:
    """All values of every key; a key may stand there more than once, and sections do not share keys here."""
    found: Unit = {}
    for line in joined(path.read_text(encoding="utf-8")):
        if line.strip() and not line.startswith(("#", "[")):
            key, equals, value = line.partition("=")
            assert equals, line
            found.setdefault(key, []).append(value)
    return found


def read_env(name: str) -> dict[str, str]:
    lines = (DEPLOY / "systemd" / name).read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def unit_commands(name: str) -> Iterator[list[str]]:
    """The words after `superhosts`, as systemd and the shell would give them."""
    values = {"STATE_DIRECTORY": "/var/lib/x", "CREDENTIALS_DIRECTORY": "/run/credentials/x"}
    for part in ("hub", "edge", "enroll", "watch", "report"):
        values |= read_env(f"{part}.env")
    for value in read_unit(UNITS[name])["ExecStart"]:
        line = value.replace("%i", "ams").replace("$$", "$")
        line = re.sub(r"\$\{?(\w+)\}?", lambda match: values[match[1]], line)
        words = shlex.split(line)
        if words[0] == "/bin/bash":
            words = shlex.split(words[2].split("<")[0])[1:]
        assert words[0] == BINARY
        yield words[1:]


def compose_commands() -> Iterator[list[str]]:
    for name, service in SERVICES.items():
        if name != "keys":
            yield shlex.split(service["command"])
    script = SERVICES["keys"]["command"][0].replace("$$site", "ams")
    script = "\n".join(joined(script))
    yield from (shlex.split(found) for found in re.findall(r"superhosts ((?:site|key)[^>\n]*)", script))


def container_commands() -> Iterator[list[str]]:
    for line in joined((DEPLOY / "Containerfile").read_text(encoding="utf-8")):
        if line.startswith("RUN "):
            yield from (shlex.split(part)[1:] for part in line[4:].split("&&") if part.split()[0] == "superhosts")


def name_of(words: list[str]) -> str:
    return " ".join(words[:2]) if words[0] in GROUPS else words[0]


def options_of(command: Any) -> set[str]:
    return {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}


COMMANDS = [words for name in sorted(UNITS) for words in unit_commands(name)]
COMMANDS += [*compose_commands(), *container_commands()]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_line_is_one_that_the_program_takes(words: list[str]) -> None:
    name = name_of(words)
    command = parsed_commands()[name]
    context = command.make_context(name, words[len(name.split()) :])  # parses, and does not run
    assert command.outdated(context) == []
    sites = context.params["site"] if "--site" in words else []
    assert all(check_site(site) for site in ([sites] if isinstance(sites, str) else sites))


def test_all_places_were_looked_at() -> None:
    assert (len(UNITS), len(TIMERS)) == (6, 1)
    assert len(list(compose_commands())) == 6
    assert [words[0] for words in container_commands()] == ["doctor", "demo"]


ENVIRONMENTS = (
    *(("hub.env", "hub"), ("edge.env", "edge"), ("enroll.env", "site enroll")),
    *(("watch.env", "watch"), ("report.env", "report")),
)


def test_options_within_sentences_exist() -> None:
    commands = parsed_commands()
    known = set().union(*(options_of(command) for command in commands.values()))
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"(?m)^    .*$", "", DOC))
    named = [span.split()[0] for span in spans if span.startswith("--")]
    assert len(named) > 30
    assert [name for name in named if name not in known] == []
    for name, command in ENVIRONMENTS:
        commented = set(re.findall(r"--[a-z0-9-]+", (DEPLOY / "systemd" / name).read_text(encoding="utf-8")))
        assert commented - {"--help"} <= options_of(commands[command])


def test_variables_of_a_unit_are_settings_of_its_command() -> None:
    for name, command in ENVIRONMENTS:
        text = (DEPLOY / "systemd" / name).read_text(encoding="utf-8")
        for variable in re.findall(r"SUPERHOSTS_\w+", text):
            keys = {f"SUPERHOSTS_{command.upper()}_{each.name.upper()}" for each in parsed_commands()[command].params}
            assert variable in keys, name


RIGHTS = dict.fromkeys(("DynamicUser", "NoNewPrivileges", "PrivateDevices", "PrivateTmp", "ProtectHome"), "yes")
RIGHTS |= {"ProtectSystem": "strict", "SystemCallFilter": "@system-service", "UMask": "0077"}


@pytest.mark.parametrize("name", sorted(UNITS))
def test_a_unit_has_the_least_rights_and_keeps_what_it_must_keep(name: str) -> None:
    unit = read_unit(UNITS[name])
    assert {key: unit[key] for key in RIGHTS} == {key: [value] for key, value in RIGHTS.items()}
    raw = ["CAP_NET_RAW"]
    assert unit["CapabilityBoundingSet"] == (raw if name in LIVE else [""])
    assert unit.get("AmbientCapabilities") == (raw if name in LIVE else None)
    families = unit["RestrictAddressFamilies"][0].split()
    assert ("AF_PACKET" in families) == (name in LIVE)
    assert "MemoryDenyWriteExecute" not in unit  # compiled loops would not start
    # systemd sends standard error where standard output goes, unless it is told otherwise.
    assert "StandardOutput" not in unit or unit.get("StandardError") == ["journal"]
    assert unit["Environment"] == [f"NUMBA_CACHE_DIR=%C/{unit['CacheDirectory'][0]}"]
    credentials = [value.split(":")[0] for value in unit.get("LoadCredential", [])]
    used = re.findall(r"CREDENTIALS_DIRECTORY\}?/(\w+)", unit["ExecStart"][0])
    assert sorted(used) == sorted(credentials)
    assert "STATE_DIRECTORY" in unit["ExecStart"][0]


@pytest.mark.parametrize("name", sorted(set(UNITS) - ONCE))
def test_a_service_tells_when_it_is_ready_and_is_watched(name: str) -> None:
    unit = read_unit(UNITS[name])
    assert unit["Type"] == ["notify"]
    assert unit["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
    minutes = {key: int(unit[key][0].removesuffix("min")) for key in ("WatchdogSec", "TimeoutStartSec")}
    assert minutes["WatchdogSec"] * 60 > STALLED  # /healthz tells before the watchdog acts
    assert minutes["TimeoutStartSec"] * 60 > STARTING
    assert "AF_UNIX" in unit["RestrictAddressFamilies"][0]  # the socket of systemd


@pytest.mark.parametrize(
    ("service", "other"),
    [
        ("superhosts-hub.service", "superhosts-enroll@.service"),
        ("superhosts-watch@.service", "superhosts-report@.service"),
    ],
)
def test_what_belongs_to_a_service_is_done_as_its_user(service: str, other: str) -> None:
    units = [read_unit(UNITS[name]) for name in (service, other)]
    for key in ("User", "StateDirectory", "CacheDirectory", "StateDirectoryMode"):
        assert units[0][key] == units[1][key]


def test_a_report_reads_what_the_watch_of_its_instance_saves() -> None:
    watch, report = (next(unit_commands(f"superhosts-{name}@.service")) for name in ("watch", "report"))
    assert watch[watch.index("--save") + 1] == report[1]
    assert watch[watch.index("--key-file") + 1] == report[report.index("--key-file") + 1]
    assert read_unit(TIMERS["superhosts-report@.timer"])["OnCalendar"] == ["*-*-* 07:00"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("name", sorted([*UNITS, *TIMERS]))
def test_systemd_understands_a_unit(name: str, tmp_path: Path) -> None:
    for each, unit in (UNITS | TIMERS).items():  # a timer is looked at with what it starts
        text = unit.read_text(encoding="utf-8").replace(BINARY, sys.executable)
        (tmp_path / each.replace("@", "@ams")).write_text(text, encoding="utf-8")
    path = tmp_path / name.replace("@", "@ams")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(path)], capture_output=True, text=True
    )
    said = [line for line in done.stderr.splitlines() if name.split("@")[0] in line]
    assert said == []


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_a_service_is_exposed_as_little_as_it_says(tmp_path: Path) -> None:
    """By systemd's own measure, from 0 to 10. What captures needs a capability and packet sockets."""
    for name, unit in UNITS.items():
        (tmp_path / name.replace("@", "@ams")).write_text(unit.read_text(encoding="utf-8"), encoding="utf-8")
    for name in UNITS:
        path = tmp_path / name.replace("@", "@ams")
        words = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(path)]
        done = subprocess.run(words, capture_output=True, text=True)
        exposure = re.search(r"Overall exposure level for .*: ([0-9.]+)", done.stdout)
        assert exposure is not None, done.stderr
        assert float(exposure[1]) < (2.5 if name in LIVE else 2.0), name


def test_the_compose_file_agrees_with_itself() -> None:
    assert set(EDGES) == {"ams", "fra", "nyc"}
    for name, service in EDGES.items():
        volumes = [volume.split(":")[0] for volume in service["volumes"]]
        assert [volume for volume in volumes if volume.startswith("keys-")] == [f"keys-{name}"]
        assert "hub-state" not in volumes
        assert f"--site {name} " in service["command"]
    used = {volume.split(":")[0] for service in SERVICES.values() for volume in service["volumes"]}
    assert used == set(COMPOSE["volumes"])
    assert f"--sites {','.join(EDGES)} " in SERVICES["hub"]["command"]
    assert f"for site in {' '.join(EDGES)};" in SERVICES["keys"]["command"][0]
    assert SERVICES["hub"]["depends_on"] == {"keys": {"condition": "service_completed_successfully"}}
    memory = {re.findall(r"--memory (\w+)", SERVICES[name]["command"])[0] for name in ("hub", *EDGES)}
    assert len(memory) == 1
    parts = {re.findall(r"part=(\d)", service["command"])[0] for service in EDGES.values()}
    assert len(parts) == 3
    for service in SERVICES.values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]


@pytest.mark.parametrize("name", ["hub", *sorted(EDGES)])
def test_a_health_check_tells_a_program_that_stands_still(name: str, tmp_path: Path) -> None:
    kind, interpreter, flag, code = SERVICES[name]["healthcheck"]["test"]
    assert (kind, interpreter, flag) == ("CMD", "python", "-c")
    folder = "/state" if name == "hub" else "/spool"
    assert f"{folder}/status.json" in code
    command = [sys.executable, "-I", "-S", "-c", code.replace(folder, str(tmp_path))]
    for age, status in ((1, 0), (600, 1)):
        (tmp_path / "status.json").write_text(json.dumps({"written": time.time() - age}), encoding="utf-8")
        assert subprocess.run(command, capture_output=True).returncode == status


@pytest.mark.slow
def test_keys_are_made_once(tmp_path: Path) -> None:
    script = SERVICES["keys"]["command"][0].replace("$$", "$").replace("/state", "state").replace("/keys", "keys")
    script = script.replace("chown -R 10001:10001", "ls")  # only root may
    (tmp_path / "state").mkdir()
    for site in EDGES:
        (tmp_path / "keys" / site).mkdir(parents=True)
    tools = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "PYTHONPATH": str(ROOT / "src")}
    environment = {**tools, "XDG_CONFIG_HOME": str(tmp_path / "own")}

    def run() -> dict[str, bytes]:
        subprocess.run(["/bin/sh", "-ec", script], cwd=tmp_path, env=environment, check=True, capture_output=True)
        return {str(file.relative_to(tmp_path)): file.read_bytes() for file in tmp_path.glob("keys/*/*")}

    made = run()
    tokens = {site: Token.decode(made[f"keys/{site}/token"].decode()) for site in EDGES}
    assert len(made) == len(EDGES)
    assert all((token.site, token.url) == (site, "nats://hub:4222") for site, token in tokens.items())
    assert len({token.seed for token in tokens.values()}) == len(EDGES)
    assert {token.key for token in tokens.values()} == {(tmp_path / "state" / "key").read_bytes().strip()}
    assert run() == made
    assert not (tmp_path / "own").exists()


def test_the_container_file_takes_what_is_there_and_is_not_root() -> None:
    lines = joined((DEPLOY / "Containerfile").read_text(encoding="utf-8"))
    copies = [line.split()[1:-1] for line in lines if line.startswith("COPY ") and "--from" not in line]
    copied = [word for words in copies for word in words]
    assert "src" in copied
    assert [name for name in copied if not (ROOT / name).exists()] == []
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "deploy" in settings["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    project = settings["project"]
    extras = re.findall(r"whl\)\[([\w,]+)\]", "\n".join(lines))[0].split(",")
    assert set(extras) <= set(project["optional-dependencies"])
    wanted = {project["readme"], *project["license-files"], "deploy/wheels.sh", "docs/manual.py"}  # by the build
    wanted.add(settings["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["path"])
    assert {each for each in wanted if each not in copied and Path(each).parts[0] not in copied} == set()
    last = [line for line in lines if line.startswith("USER ")][-1]
    assert last == "USER 10001:10001"
    assert lines.index(last) < lines.index('ENTRYPOINT ["superhosts"]')


def table(title: str) -> list[str]:
    """The names in the first column of the table below a line that begins so, the first one behind its chapter."""
    chapter, _, begin = title.partition(" / ")
    text = DOC[DOC.index(f"\n## {chapter}") :]
    text = text[text.index(f"\n{begin}") + 1 :] if begin else text
    rows = text[text.index("|---|") :].splitlines()[1:]
    names = []
    for row in rows:
        if not row.startswith("|"):
            break
        names += re.findall(r"`(\w+)`", row.split("|")[1])
    return names


COUNTERS = {
    "Edge / `edge`": EdgeCounters,
    "Edge / `spool`": SpoolCounters,
    "Edge / `link`": SendCounters,
    "Hub / `hub`": HubCounters,
    "Hub / `desk`": IntakeCounters,
    "Hub / `link`": ReceiveCounters,
    "Hub / `broker`": BrokerCounters,
    "`link` over files": FileCounters,
}


def test_every_counter_is_explained_and_none_is_made_up() -> None:
    for title, kind in COUNTERS.items():
        assert sorted(table(title)) == sorted(field.name for field in fields(kind)), title
    assert sorted(table("Edge / `scan`")) == sorted(status_counters(Counters()))
