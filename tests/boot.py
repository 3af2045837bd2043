"""Start the units of deploy/systemd under a real systemd: `sudo make boot`. Needs root and systemd-nspawn.

A container boots with this machine's own /usr, and everything else empty. In it a hub and an edge are enrolled,
connected, reloaded, killed and frozen; the journal and the service manager's view of them are checked from outside.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
UNITS = ROOT / "deploy" / "systemd"
HOME = Path("/opt/superhosts")  # as the units have it
LONGEST = 900  # seconds
INSIDE = r"""#!/bin/bash
exec > /out/log 2>&1
set -x
show() { systemctl show "$1" -p ActiveState -p StatusText -p NRestarts -p Result -p ExecMainStatus; }
mkdir -p /etc/superhosts && cp /conf/* /etc/superhosts && chmod 600 /etc/superhosts/*
/opt/superhosts/bin/superhosts key new /etc/superhosts/key > /dev/null
systemctl start superhosts-hub && show superhosts-hub > /out/started
systemctl start superhosts-enroll@ams && install -m 600 /var/lib/superhosts-hub/broker/seeds/ams.token /etc/superhosts
systemctl start superhosts-edge@ams && show superhosts-edge@ams > /out/edge
for turn in $(seq 120); do [ -s /var/lib/superhosts-hub/hosts.jsonl ] && break; sleep 1; done
cp /var/lib/superhosts-hub/hosts.jsonl /out/hosts.jsonl
systemctl reload superhosts-hub && sleep 2 && show superhosts-hub > /out/reloaded
kill -9 "$(systemctl show superhosts-hub -p MainPID --value)"; sleep 20; show superhosts-hub > /out/killed
kill -STOP "$(systemctl show superhosts-hub -p MainPID --value)"; sleep 100; show superhosts-hub > /out/frozen
systemctl stop superhosts-edge@ams; show superhosts-edge@ams > /out/edge-stopped
systemctl stop superhosts-hub; show superhosts-hub > /out/stopped
journalctl --no-pager -o cat -u superhosts-hub > /out/journal-hub
journalctl --no-pager -o cat -u superhosts-edge@ams > /out/journal-edge
systemctl poweroff
"""
TRY = """[Unit]
After=multi-user.target
[Service]
Type=oneshot
TimeoutStartSec=infinity
ExecStart=/out/inside
"""
CONFIGURED = {
    "hub.env": "HUB_OPTIONS=--listen 127.0.0.1:4222 --sites ams --grace 5s --threshold 50",
    "enroll.env": "ENROLL_OPTIONS=--address nats://127.0.0.1:4222",
    "edge-ams.env": "CAPTURES=/captures\nEDGE_OPTIONS=--inner private --window 1m",
}


def main() -> None:
    if os.geteuid() or shutil.which("systemd-nspawn") is None:
        sys.exit("boot.py: run it as root, with systemd-nspawn installed (Debian: systemd-container)")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        _prepare(folder)
        _boot(folder)
        _check(folder / "out")
    print("The units work under systemd.")


def _prepare(folder: Path) -> None:
    for name in ("system/multi-user.target.wants", "conf", "out", "captures"):
        (folder / name).mkdir(parents=True)
    for unit in UNITS.glob("*.service"):
        shutil.copy(unit, folder / "system")
    (folder / "system" / "superhosts-hub.service.d").mkdir()
    (folder / "system" / "superhosts-hub.service.d" / "soon.conf").write_text("[Service]\nWatchdogSec=60s\n")
    for unit in ("systemd-firstboot", "systemd-networkd", "systemd-networkd-wait-online", "systemd-resolved"):
        (folder / "system" / f"{unit}.service").symlink_to("/dev/null")
    (folder / "system" / "try.service").write_text(TRY)
    (folder / "system" / "multi-user.target.wants" / "try.service").symlink_to("/etc/systemd/system/try.service")
    for name, text in CONFIGURED.items():
        (folder / "conf" / name).write_text(f"{text}\n")
    (folder / "out" / "inside").write_text(INSIDE)
    (folder / "out" / "inside").chmod(0o755)
    python = HOME / "bin" / "python"
    if not python.exists():
        subprocess.run(["/usr/bin/python3", "-m", "venv", HOME], check=True)
    subprocess.run([python, "-m", "pip", "install", "-q", f"{ROOT}[fleet]"], check=True)
    synth = [HOME / "bin" / "superhosts", "synth", folder / "captures" / "one.pcap"]
    subprocess.run([*synth, "--flows", "50k", "--super-hosts", "20", "--windows", "3", "--window", "1m"], check=True)
    for answer in (folder / "captures").glob("*.jsonl"):
        answer.unlink()
    folder.chmod(0o755)


def _boot(folder: Path) -> None:
    # With --volatile=yes the container has /usr, read-only, and nothing else of this machine.
    container = ["systemd-nspawn", "--boot", "--directory=/", "--volatile=yes", "--machine=superhosts-boot"]
    container += ["--register=no", "--keep-unit", f"--bind-ro={HOME}"]
    for inside, outside in {"/etc/systemd/system": "system", "/out": "out"}.items():
        container.append(f"--bind={folder / outside}:{inside}")
    for name in ("conf", "captures"):
        container.append(f"--bind-ro={folder / name}:/{name}")
    environment = os.environ | {"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"}
    subprocess.run(
        container, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=LONGEST, check=False
    )


def _check(out: Path) -> None:
    def state(name: str) -> dict[str, str]:
        return dict(line.split("=", 1) for line in (out / name).read_text().splitlines())

    try:
        assert state("started")["ActiveState"] == state("edge")["ActiveState"] == "active"
        assert "reports" in state("started")["StatusText"]
        rows = [json.loads(line) for line in (out / "hosts.jsonl").read_text().splitlines()]
        assert rows, "the hub has reported no host"
        assert rows[0]["sites"][0]["site"] == "ams"
        # A first boot starts what is not enabled, too: a hub without its key.
        before, *others = (int(state(when)["NRestarts"]) for when in ("started", "reloaded", "killed", "frozen"))
        assert [count - before for count in others] == [0, 1, 2], "the watchdog ends a hub that stands still"
        assert state("killed")["ActiveState"] == "active"
        for stopped in ("edge-stopped", "stopped"):
            assert (state(stopped)["Result"], state(stopped)["ExecMainStatus"]) == ("success", "0")
        assert '"event": "ready"' in (out / "journal-hub").read_text(), "the journal has nothing of the hub"
        assert '"event": "ready"' in (out / "journal-edge").read_text(), "the journal has nothing of the edge"
    except (AssertionError, OSError):
        for path in sorted(out.iterdir()):
            print(f"==== {path.name}\n{path.read_text()[-4000:]}")
        raise


if __name__ == "__main__":
    main()
