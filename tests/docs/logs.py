"""Small logs for the pages of docs/: one morning in an office, as Zeek, Suricata and a table tell it.

10.20.4.17 opens connections to 600 addresses, few of which answer. 10.20.0.53 is a resolver that asks 250 servers, all
of which answer. 40 others talk to six servers each.
"""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

BEGIN = datetime(2026, 3, 2, 9, 0, tzinfo=UTC).timestamp()
FIELDS = "ts uid id.orig_h id.orig_p id.resp_h id.resp_p proto service duration orig_bytes resp_bytes conn_state"
TYPES = "time string addr port addr port enum string interval count count string"


class Flow(NamedTuple):
    seconds: float
    source: str
    destination: str
    port: int
    protocol: str
    is_answered: bool


def flows() -> list[Flow]:
    made = [Flow(n / 10, "10.20.4.17", f"198.18.{n // 200}.{n % 200}", 445, "tcp", n % 20 == 0) for n in range(600)]
    made += [Flow(n / 5, "10.20.0.53", f"192.0.2.{n % 250}", 53, "udp", True) for n in range(250)]
    made += [
        Flow(n + k / 10, f"10.20.1.{n}", f"203.0.113.{k}", 443, "tcp", True) for n in range(1, 41) for k in range(6)
    ]
    return sorted(made)


def write_logs(folder: Path) -> Path:
    """Write conn.log, eve.json and flows.csv to a folder; return the folder."""
    lines = ["#separator \\x09", "#path\tconn", "\t".join(["#fields", *FIELDS.split()])]
    lines.append("\t".join(["#types", *TYPES.split()]))
    events, rows = [], []
    for number, flow in enumerate(flows()):
        time, state = BEGIN + flow.seconds, "SF" if flow.is_answered else "S0"
        counts = ["120", "80"] if flow.is_answered else ["0", "0"]
        ends = [flow.source, str(40_000 + number % 20_000), flow.destination, str(flow.port)]
        lines.append("\t".join([f"{time:.6f}", f"C{number:07}", *ends, flow.protocol, "-", "0.1", *counts, state]))
        stamp = datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f+0000")
        events.append(
            {
                "timestamp": stamp,
                "event_type": "flow",
                "src_ip": flow.source,
                "src_port": int(ends[1]),
                "dest_ip": flow.destination,
                "dest_port": flow.port,
                "proto": flow.protocol.upper(),
                "flow": {"pkts_toserver": 1, "pkts_toclient": int(flow.is_answered), "start": stamp},
            }
        )
        rows.append([f"{time:.3f}", flow.source, flow.destination])
    (folder / "conn.log").write_text("\n".join(lines) + "\n")
    (folder / "eve.json").write_text("".join(json.dumps(event) + "\n" for event in events))
    with (folder / "flows.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["seen", "client", "server"], *rows])
    return folder
