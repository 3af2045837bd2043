"""Tables: `superhosts scan` of Parquet and Arrow files against DuckDB's exact query on the same file, in turns.

    python benchmarks/tables.py                  about 20 minutes on two cores
    python benchmarks/tables.py --quick          ten times smaller inputs, to check that the benchmark works
    python benchmarks/tables.py --rounds 5

Requires the extra "bench". Both are measured as a user runs them: from the start of a process to its exit, with the
file in the page cache. Two questions are asked. "both ends": every address is a host, and its peers are those it sends
to and those that send to it; this is what a scan counts without options. "sources": only the sender is a host. DuckDB
has two ways to ask each, and its faster one counts. The long file has four times the rows: there the start of a process
counts less. Processor seconds are noted, because other load affects them less.
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cases import SHUFFLED_5M, THETA, Case, Column
from harness import HERE, PUBLIC_KEY, Report, superhosts_command

TIMES = 4  # as many rows of the same flows in the long file
DUCKDB = """
import sys, duckdb
connection = duckdb.connect()
connection.execute(f"set threads = {sys.argv[1]}; set enable_progress_bar = false")
print(len(connection.execute(sys.argv[2]).fetchall()))
"""
ENDS = "(select src as host, dst as peer from '{file}' union all select dst, src from '{file}')"
SOURCES = "(select src as host, dst as peer from '{file}')"
QUERIES = {
    "count distinct": "select host, count(distinct peer) as n from {pairs} group by host having n >= {theta}",
    "distinct, count": "select host, count(*) as n from (select distinct host, peer from {pairs}) group by host "
    "having n >= {theta}",
}


class Spent(NamedTuple):
    """Seconds of a process, and the hosts that it found."""

    wall: float
    processor: float
    hosts: int


def write_numbers(hosts: Column, peers: Column, file: Path, times: int = 1) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"src": hosts, "dst": peers})
    with pq.ParquetWriter(file, table.schema) as writer:
        for _ in range(times):
            writer.write_table(table)


def write_long(hosts: Column, peers: Column, file: Path) -> None:
    write_numbers(hosts, peers, file, TIMES)


def write_text(hosts: Column, peers: Column, file: Path) -> None:
    """Write addresses as text, each distinct one formatted once."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {}
    for name, column in (("src", hosts), ("dst", peers)):
        distinct, places = np.unique(column, return_inverse=True)
        texts = pa.array([str(ipaddress.IPv4Address(int(number))) for number in distinct])
        columns[name] = texts.take(pa.array(places))
    pq.write_table(pa.table(columns), file)


def spend(command: list[str], count: Callable[[str], int]) -> Spent:
    """Run a command; return its seconds, and the hosts in its output."""
    # An installed package has its modules as byte code; one in a folder writes it with the first run.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | PUBLIC_KEY
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"{command[:3]}: status {done.returncode}\n{done.stderr}")
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Spent(wall, processor, count(done.stdout))


def scan(file: Path, *options: str) -> Spent:
    command = [*superhosts_command(), "scan", str(file), "--window", "all", "--threshold", str(THETA), "--json", "-q"]
    return spend([*command, *options], lambda output: len([json.loads(line) for line in output.splitlines()]))


def ask(file: Path, pairs: str, query: str) -> Spent:
    text = query.format(pairs=pairs.format(file=file), theta=THETA)
    threads = str(len(os.sched_getaffinity(0)))
    return spend([sys.executable, "-c", DUCKDB, threads, text], int)


QUESTIONS = {"both ends": (("--special", "keep"), ENDS), "sources": (("--direction", "out"), SOURCES)}


def compare(report: Report, what: str, file: Path, rows: int, rounds: int) -> None:
    """Take turns, and report rates and the quotient."""
    for question, (options, pairs) in QUESTIONS.items():
        jobs: dict[str, Callable[[], Spent]] = {"superhosts": lambda options=options: scan(file, *options)}
        for name, query in QUERIES.items():
            jobs[f"DuckDB, {name}"] = lambda pairs=pairs, query=query: ask(file, pairs, query)
        spent: dict[str, list[Spent]] = {name: [] for name in jobs}
        for turn in range(rounds + 1):  # The first round compiles, and reads the file into the page cache.
            for name, job in jobs.items():
                found = job()
                if turn:
                    spent[name].append(found)
        best = {name: min(each.wall for each in all_of_it) for name, all_of_it in spent.items()}
        least = {name: min(each.processor for each in all_of_it) for name, all_of_it in spent.items()}
        for name, all_of_it in spent.items():
            rates = [rows / each.wall / 1e6 for each in all_of_it]
            note = f"{all_of_it[0].hosts:,} hosts; {least[name]:.2f} processor seconds"
            report.add("tables", f"{what}, {question}: {name}", max(rates), "M rows/s", note=note, runs=rates)
        peer = min((name for name in best if name != "superhosts"), key=lambda name: best[name])
        report.add(
            "tables",
            f"{what}, {question}: times as fast as DuckDB",
            best[peer] / best["superhosts"],
            "times",
            note=f"{peer}; of processor seconds {least[peer] / least['superhosts']:.2f}",
        )


def main() -> None:
    """Make the files, measure, write the results."""
    parser = argparse.ArgumentParser(description="Scans of tables against DuckDB")
    parser.add_argument("--quick", action="store_true", help="ten times smaller inputs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", help="integers, text, or 'integers, long'; may be repeated")
    parser.add_argument("--results", type=Path, default=HERE / "results", help="folder of the Markdown file")
    options = parser.parse_args()
    report = Report(quick=options.quick)
    case: Case = SHUFFLED_5M.quick() if options.quick else SHUFFLED_5M
    with tempfile.TemporaryDirectory() as made:
        hosts, peers = case.make()
        files: dict[str, tuple[int, Any]] = {
            "integers": (len(hosts), write_numbers),
            "text": (len(hosts), write_text),
            "integers, long": (TIMES * len(hosts), write_long),
        }
        for what, (rows, write) in files.items():
            if options.only and what not in options.only:
                continue
            file = Path(made, "table.parquet")
            write(hosts, peers, file)
            compare(report, f"Parquet, {what}", file, rows, options.rounds)
            file.unlink()
    if not options.quick:
        name = f"tables-{report.place}"
        for path in report.write(options.results, name, "Tables"):
            print(path)


if __name__ == "__main__":
    main()
