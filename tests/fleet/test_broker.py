"""The embedded broker: a real nats-server, its life and its keys."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import nats
import nats.errors
import pytest

from brokers import accepts, eventually, make_broker, server_pid
from faults import at_sync
from processes import DEADLINE
from superhosts.core.units import parse_host_port
from superhosts.errors import MissingExtraError, UsageError
from superhosts.fleet.nats import broker as broker_setup
from superhosts.fleet.nats.broker import Broker, Tls, find_server, is_loopback
from superhosts.fleet.nats.credentials import public_key
from superhosts.fleet.nats.enrolment import enroll, read_sites, unenroll


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_it_comes_up_with_a_synced_store_and_goes_away(tmp_path: Path) -> None:
    said: list[str] = []
    with make_broker(tmp_path / "broker", said) as broker:
        pid = server_pid(broker)
        assert is_running(pid)

        async def look() -> int:
            async with await nats.connect(broker.options.url) as client:
                info = await client.jetstream().account_info()
                return int(info.limits.max_storage)

        asyncio.run(look())
    assert not is_running(pid)
    assert said == []
    config = json.loads((tmp_path / "broker" / "nats.conf").read_text())
    assert config["jetstream"]["sync_interval"] == "always"
    assert not {"http", "http_port", "monitor_port", "https_port"} & config.keys()


def test_somebody_elses_server_on_the_port_is_not_taken_for_ours(tmp_path: Path) -> None:
    with make_broker(tmp_path / "one", []) as first:
        listen = first.options.url.removeprefix("nats://")
        with pytest.raises(UsageError, match=rf"does not start on {re.escape(listen)}.*address already in use"):
            make_broker(tmp_path / "two", [], listen=listen).start()


def test_a_killed_server_is_started_again_on_its_port(tmp_path: Path) -> None:
    said: list[str] = []
    with make_broker(tmp_path / "broker", said) as broker:
        url, pid = broker.options.url, server_pid(broker)
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: server_pid(broker) not in (None, pid) and accepts_quietly(broker))
        assert broker.options.url == url
        assert broker.counters.restarts == 1
        assert len(said) == 1
        assert "has ended unexpectedly (status -9): restarting it" in said[0]


def accepts_quietly(broker: Broker) -> bool:
    host, port = parse_host_port(broker.options.url.removeprefix("nats://"))
    try:
        with socket.create_connection((host, port), 1):
            return True
    except OSError:
        return False


HUB = """
import sys, time
from pathlib import Path
from superhosts.fleet.nats.broker import Broker
broker = Broker(Path(sys.argv[1]), print, listen="127.0.0.1:0")
broker.start()
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends a child with its parent on Linux only")
def test_it_does_not_outlive_a_killed_hub(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HUB, str(tmp_path / "broker")], stdout=subprocess.PIPE) as hub:
        assert hub.stdout.readline() == b"ready\n"
        pid = int((tmp_path / "broker" / "nats.pid").read_text())
        assert is_running(pid)
        hub.kill()
    eventually(lambda: not is_running(pid))


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_leftover_of_an_earlier_hub_is_ended_and_nobody_else(tmp_path: Path) -> None:
    said: list[str] = []
    with make_broker(tmp_path / "broker", said) as broker:
        listen = broker.options.url.removeprefix("nats://")
        config = broker.folder / "nats.conf"
    with subprocess.Popen([find_server(), "-c", config]) as leftover:
        eventually((tmp_path / "broker" / "nats.pid").exists)
        eventually(lambda: server_pid(broker) == leftover.pid)
        with make_broker(tmp_path / "broker", said, listen=listen):
            assert leftover.wait(DEADLINE) is not None
        assert said == [f"ending a broker that an earlier hub has left behind (process {leftover.pid})"]
    with subprocess.Popen(["sleep", "600"]) as stranger:
        (tmp_path / "broker" / "nats.pid").write_text(str(stranger.pid))
        with make_broker(tmp_path / "broker", said):
            assert stranger.poll() is None
        stranger.kill()


def test_two_hubs_do_not_share_a_folder(tmp_path: Path) -> None:
    with make_broker(tmp_path, []), pytest.raises(UsageError, match="another process is using this folder"):
        make_broker(tmp_path, []).start()
    with make_broker(tmp_path, []):
        pass  # the folder is free again


def test_it_listens_to_the_world_only_with_keys(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--listen 0\.0\.0\.0:0 can be reached by others, and no site is enrolled"):
        make_broker(tmp_path, [], listen="0.0.0.0:0").start()
    seed = Path(shutil.copy(enroll(tmp_path, "ams"), tmp_path / "ams.nk"))
    with make_broker(tmp_path, [], listen="0.0.0.0:0") as broker:
        assert broker.exposed
        assert broker.options.url.startswith("nats://127.0.0.1:")
        assert accepts(broker, seed)
        assert accepts(broker, broker.options.nkey)
        assert not accepts(broker, None)
        unenroll(tmp_path, "ams")
        eventually(lambda: broker.counters.reloads == 1)
        eventually(lambda: not accepts(broker, seed))
        assert not accepts(broker, None)  # the last site's end does not open the door
    with make_broker(tmp_path, []) as broker:  # nor does the next start
        assert not broker.exposed
        assert not accepts(broker, seed)
        assert not accepts(broker, None)
        assert accepts(broker, broker.options.nkey)


def test_a_seed_is_on_disk_before_the_broker_knows_its_site(tmp_path: Path) -> None:
    synced: list[int] = []
    with at_sync(lambda handle: synced.append(os.fstat(handle).st_ino)):
        assert enroll(tmp_path, "ams").exists()
    folders = [path.stat().st_ino for path in (tmp_path / "seeds", tmp_path)]
    assert [inode for inode in synced if inode in folders][-2:] == folders


def test_a_running_server_learns_of_new_and_changed_keys(tmp_path: Path) -> None:
    said: list[str] = []
    enroll(tmp_path, "ams")
    with make_broker(tmp_path, said) as broker:
        fra = Path(shutil.copy(enroll(tmp_path, "fra"), tmp_path / "fra.nk"))
        eventually(lambda: accepts(broker, fra))
        again = enroll(tmp_path, "fra")
        eventually(lambda: accepts(broker, again))
        assert not accepts(broker, fra)
        eventually(lambda: len(said) == 2)
        assert said == ["the embedded broker has loaded the changed sites"] * 2
        assert broker.admitted() == {"ams", "fra"}
        assert read_sites(tmp_path)["fra"] == public_key(again)


def test_addresses() -> None:
    assert parse_host_port("[::1]:4222") == ("::1", 4222)
    for text in ("4222", ":4222", "localhost", "localhost:x", "localhost:70000", "", "[::1", "[::1:4222", "::1]:4222"):
        with pytest.raises(UsageError, match="not HOST:PORT"):
            parse_host_port(text)
    hosts = {"127.0.0.1": True, "127.8.8.8": True, "::1": True, "0.0.0.0": False, "192.0.2.1": False}
    assert {host: is_loopback(host) for host in hosts} == hosts
    with pytest.raises(UsageError, match=r"--listen a\.\.b: "):
        is_loopback("a..b")


def test_a_missing_certificate_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.pem: cannot be read"):
        make_broker(tmp_path, [], tls=Tls(tmp_path / "none.pem", tmp_path / "none.key")).start()
    with make_broker(tmp_path, []):
        pass  # the failed start has let go of the folder


def test_without_the_server_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def absent(name: str) -> list[importlib.metadata.PackagePath]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(broker_setup.importlib.metadata, "files", absent)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingExtraError, match=r"the embedded broker needs .*superhosts\[fleet\]"):
        make_broker(tmp_path, []).start()
