"""How long a newcomer waits: first and second run of the commands of a first hour, of several installs in turn.

    python benchmarks/first_hour.py --rounds 3 clone=.venv/bin/superhosts wheel=/tmp/wheel/bin/superhosts

Every command begins with an empty folder for compiled code. Prints a table of wall seconds, the median of the rounds,
with what each first run said of compiling; --json FILE keeps all runs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import PUBLIC_KEY
from superhosts.core.device import cuda_problem

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

CAPTURES = Path(__file__).parents[1] / "tests" / "first_hour" / "captures"
FRESH = Path(tempfile.gettempdir()) / "superhosts-first-hour"
COMPILED = re.compile(r"compiled in ([\d.]+) s")


def write_inputs(folder: Path, program: str) -> dict[str, list[str]]:
    """Write an input of each kind; return the commands by name."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import ipc

    from docs.logs import write_logs
    from sources.exports.test_files import DATAGRAMS

    write_logs(folder)
    table = pa.table({"src": ["10.0.0.1"] * 9, "dst": [f"192.0.2.{n}" for n in range(9)], "ts": range(9)})
    pq.write_table(table, folder / "flows.parquet")
    with ipc.new_file(folder / "flows.arrow", table.schema) as writer:
        writer.write_table(table)
    (folder / "flows.nfv5").write_bytes(b"".join(DATAGRAMS["v5"]))
    office, services, inner = str(CAPTURES / "office.pcap.gz"), str(CAPTURES / "services.pcap.gz"), "--inner private"
    subprocess.run(
        [program, "scan", office, *inner.split(), "--save", str(folder / "kept"), "-q"],
        env=environment(folder / "prepared"),
        stdout=subprocess.DEVNULL,
        check=True,
    )
    kept = " ".join(map(str, sorted((folder / "kept").glob("*.cube"))))
    lines = {
        "scan office.pcap.gz": f"scan {office} {inner} --threshold 1000",
        "scan --evidence": f"scan {services} --threshold 300 --evidence",
        "scan --peers": f"scan {services} {inner} --peers opened,unanswered",
        "scan --slide": f"scan {office} {inner} --slide 1m --top 5",
        "scan --save": f"scan {office} {inner} --save {FRESH}",
        "scan --exact off": f"scan {office} {inner} --exact off",
        "hosts": f"hosts {kept} --threshold 100",
        "merge": f"merge {kept} -o {folder}/union.cube",
        "CSV": f"scan {folder}/flows.csv --map src=client,dst=server,time=seen",
        "Zeek": f"scan {folder}/conn.log",
        "EVE": f"scan {folder}/eve.json",
        "Parquet": f"scan {folder}/flows.parquet",
        "Arrow": f"scan {folder}/flows.arrow",
        "NetFlow file": f"scan {folder}/flows.nfv5",
        "IPFIX file": f"scan {CAPTURES}/services.ipfix.gz {inner}",
        "plan": "plan --flows 5M",
    }
    if cuda_problem() is None:
        lines["scan --device cuda"] = f"scan {office} {inner} --device cuda"
    return {name: line.split() for name, line in lines.items()}


def environment(cache: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SUPERHOSTS", "PYTHONDONT"))}
    return {**kept, **PUBLIC_KEY, "NUMBA_CACHE_DIR": str(cache), "CUDA_CACHE_PATH": str(cache)}


def timed(program: str, words: list[str], cache: Path) -> tuple[float, float]:
    """Return the seconds of a run, and how many of them it says that it compiled."""
    shutil.rmtree(FRESH, ignore_errors=True)  # A second scan into the same folder would read the sketches there.
    began = time.perf_counter()
    ended = subprocess.run([program, *words], env=environment(cache), capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - began
    assert ended.returncode == 0, f"{program} {words}: {ended.stderr}"
    return seconds, sum(map(float, COMPILED.findall(ended.stderr)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+", metavar="NAME=PROGRAM")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="names of commands, separated by commas")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    programs = dict(each.split("=", 1) for each in options.programs)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as made:
        commands = write_inputs(Path(made), next(iter(programs.values())))
        chosen = {
            name: words for name, words in commands.items() if not options.only or name in options.only.split(",")
        }
        for program in programs.values():  # bytecode
            subprocess.run([program, "--version"], stdout=subprocess.DEVNULL, check=True)
        for number in range(options.rounds):
            for name, words in chosen.items():
                for label, program in programs.items():
                    with tempfile.TemporaryDirectory() as cache:
                        for run in ("first", "second"):
                            seconds, compiling = timed(program, words, Path(cache))
                            found = {"round": number, "command": name, "program": label, "run": run}
                            rows.append({**found, "seconds": seconds, "compiling": compiling})
                print(f"round {number + 1}: {name}", file=sys.stderr)
    if options.json:
        options.json.write_text(json.dumps(rows))
    heads = [f"{label}, {run}" for label in programs for run in ("first", "second")]
    print("| command | " + " | ".join(heads) + " |\n|---|" + "---|" * len(heads))
    for name in chosen:
        cells = []
        for label in programs:
            for run in ("first", "second"):
                mine = [row for row in rows if (row["command"], row["program"], row["run"]) == (name, label, run)]
                seconds, compiling = (statistics.median(row[key] for row in mine) for key in ("seconds", "compiling"))
                cells.append(f"{seconds:.2f}" + (f" (compiled {compiling:.1f})" if compiling else ""))
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
