"""Section "memory": memory of a query beyond imports, warm-up and input, with a separate process for each engine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from cases import SHUFFLED_5M, SHUFFLED_48M, Case
from harness import HERE, Report
from peers import WAYS
from superhosts.sources.synthetic.traffic import Traffic

THOUSAND = Case("1,000 pairs", Traffic(flows=1000, packets=1000, super_hosts=0), "flows")


def run(report: Report, folder: Path) -> None:
    """Measure both sizes."""
    few = _ask("cube", THOUSAND.save(folder))
    report.add("memory", "memory, 1,000 pairs: cube", few["extra"], "MiB", note=str(few["how"]))
    for full, size in ((SHUFFLED_5M, "5 M flows"), (SHUFFLED_48M, "48 M flows")):
        case = full.quick() if report.quick else full
        _measure(report, case, f"memory, {size}", case.save(folder))


def _measure(report: Report, case: Case, start: str, place: Path) -> None:
    true = len(case.truth())
    cube = _ask("cube", place)
    note = f"found {cube['found']:.0f} of {true}; {cube['how']}"
    report.add("memory", f"{start}: cube", cube["extra"], "MiB", note=note)
    rated: dict[str, float] = {}
    exact_ones: dict[str, float] = {}
    for number, way in enumerate(WAYS):
        title = f"{way.engine}, {way.name}"
        answer = _ask(str(number), place)
        if way.exact and answer["found"] != true:
            raise RuntimeError(f"{title}: {answer['found']:.0f} hosts instead of {true}")
        if way.rated:
            rated[title] = answer["extra"]
            exact_ones |= {title: answer["extra"]} if way.exact else {}
        report.add("memory", f"{start}: {title}", answer["extra"], "MiB", note=f"found {answer['found']:.0f}")
    exact = _ask("exact", place)
    report.add("memory", f"{start}: superhosts exact", exact["extra"], "MiB", note=f"found {exact['found']:.0f}")
    for what, field in (("leanest peer", rated), ("leanest exact peer", exact_ones)):
        leanest = min(field, key=lambda title: field[title])
        ratio = cube["extra"] / field[leanest]
        report.add("memory", f"{start}: cube / {what}", ratio, "times", note=f"{leanest}; 1/{1 / ratio:.2f}")


def _ask(name: str, place: Path) -> dict[str, float]:
    worker = [sys.executable, str(HERE / "memory_worker.py"), name, str(place)]
    done = subprocess.run(worker, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"memory of {name}: status {done.returncode}\n{done.stderr}")
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer
