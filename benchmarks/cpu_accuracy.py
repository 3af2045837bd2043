"""Section "accuracy": error rates over twelve windows of distinct flows, each with different hosts and peers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean, stdev

from cases import FLOWS_5M, THETA, Column, Score, truth_of, update_in_batches
from harness import Report
from superhosts.detectors.cbaa import Cbaa
from superhosts.detectors.columnsketch import ColumnSketch
from superhosts.detectors.cube import Cube
from superhosts.sources.synthetic.traffic import Traffic, window_flows, window_hosts

WINDOWS = 12


@dataclass
class Tally:
    """The results of one detector over all windows."""

    scores: list[Score] = field(default_factory=list)
    covered: int = 0
    asked: int = 0
    saturated: int = 0
    errors: list[float] = field(default_factory=list)

    def add(self, detector: ColumnSketch, traffic: Traffic, hosts: Column, peers: Column) -> None:
        """Feed one window, score the result, and estimate every true super host by name.

        Estimates of reported hosts only would be biased, because the estimate decides which hosts are reported.
        """
        update_in_batches(detector, hosts, peers)
        true, got = truth_of(traffic), set(detector.super_hosts(THETA).hosts.tolist())
        self.scores.append(Score(len(true), len(true - got), len(got - true)))
        for host, size in zip(*(column.tolist() for column in window_hosts(traffic, 0)), strict=True):
            if size < THETA:
                continue
            row = detector.estimate(host)
            self.asked += 1
            self.covered += row.peers_low <= size and (row.peers_high is None or size <= row.peers_high)
            self.saturated += row.saturated
            if not row.saturated:
                self.errors.append(abs(row.peers / size - 1))


def run(report: Report, _folder: Path) -> None:
    """Measure the three detectors on the same windows."""
    windows = 4 if report.quick else WINDOWS
    base = FLOWS_5M.quick().traffic if report.quick else FLOWS_5M.traffic
    tallies = {"cube": Tally(), "cbaa": Tally(), "cbaa-paper": Tally()}
    makers = {"cube": partial(Cube, exact=False), "cbaa": Cbaa, "cbaa-paper": Cbaa.paper}
    for seed in range(1, windows + 1):
        traffic = Traffic(flows=base.flows, packets=base.packets, super_hosts=base.super_hosts, seed=seed)
        hosts, peers = window_flows(traffic, 0)
        for name, tally in tallies.items():
            tally.add(makers[name](), traffic, hosts, peers)
    for name, tally in tallies.items():
        rates = [score.fnr + score.fpr for score in tally.scores]
        error = stdev(rates) / math.sqrt(len(rates))
        fnr, fpr = fmean(score.fnr for score in tally.scores), fmean(score.fpr for score in tally.scores)
        note = f"± {error:.2f} (standard error); FNR {fnr:.2f}, FPR {fpr:.2f}; {base.flows:,} flows a window"
        report.add("accuracy", f"accuracy, {name}: total false rate", fmean(rates), "%", note=note, runs=rates)
        note = f"{tally.asked} true super hosts, {tally.saturated} saturated"
        report.add(
            "accuracy", f"accuracy, {name}: 95 % interval", 100 * tally.covered / tally.asked, "% hold", note=note
        )
        report.add("accuracy", f"accuracy, {name}: mean relative error, unsigned", 100 * fmean(tally.errors), "%")
