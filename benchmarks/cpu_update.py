"""Section "update": updating a cube from pairs in memory, compared with engines that answer the same query."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import NamedTuple

from cases import SHUFFLED_5M, SHUFFLED_48M, THETA, TRAINS_5M, Case, Column, update_in_batches
from harness import Report, timed
from peers import WAYS, Ask, Hosts, Way
from superhosts.detectors.cube import Cube

ROUNDS = 3
SLOW = 6.0  # seconds; a slower engine runs one round less
CLOSE = 1.2  # queries of an engine within this factor of its fastest one take part in the rounds
LEAST_NAMED = 0.9  # share of the true hosts that an approximate engine must find to take part


def run(report: Report, folder: Path) -> None:
    """Measure the three inputs."""
    for full in (SHUFFLED_5M, TRAINS_5M, SHUFFLED_48M):
        case = full.quick() if report.quick else full
        print(f" {case.label}: {case.pairs:,} pairs, {case.traffic.flows:,} flows", flush=True)
        _measure(report, case, *case.load(folder))


def _measure(report: Report, case: Case, hosts: Column, peers: Column) -> None:
    cube, dense = Cube("128MiB", device="cpu"), Cube("128MiB", device="cpu", exact=False)

    def update_dense() -> Hosts:
        update_in_batches(dense, hosts, peers)
        return hosts[:0]

    def update() -> Hosts:
        update_in_batches(cube, hosts, peers)
        return hosts[:0]

    def from_scratch() -> Hosts:
        fresh = Cube("128MiB", device="cpu")
        update_in_batches(fresh, hosts, peers)
        return fresh.super_hosts(THETA).hosts

    update()
    score = case.score(cube.super_hosts(THETA).hosts)
    contenders = _choose(case, hosts, peers)
    state = "exact" if cube.exact else "dense"
    update_dense()
    asks: dict[str, Ask] = {"update": update, "scratch": from_scratch, "dense": update_dense}
    asks |= {contender.title: contender.ask for contender in contenders}
    slow = {contender.title for contender in contenders if contender.seconds > SLOW}
    runs: dict[str, list[float]] = {name: [] for name in asks}
    names = list(asks)
    for turn in range(ROUNDS):
        for name in names[turn:] + names[:turn]:
            if turn < ROUNDS - 1 or name not in slow:
                cube.clear()
                dense.clear()
                runs[name].append(timed(asks[name])[0])

    rates = {name: [case.pairs / run / 1e6 for run in times] for name, times in runs.items()}
    start = f"update, {case.label}"
    best: dict[str, Contender] = {}  # the fastest query of each engine
    for contender in contenders:
        engine = contender.way.engine
        if engine not in best or max(rates[contender.title]) > max(rates[best[engine].title]):
            best[engine] = contender
    for name, title, note in (
        ("update", "cube", str(score)),
        ("scratch", "cube, from allocation to answer", state),
        ("dense", "cube, dense", ""),
        *((one.title, one.way.engine, f"{one.way.name}; {one.remark}") for one in best.values()),
    ):
        report.add("update", f"{start}: {title}", max(rates[name]), "M pairs/s", note=note, runs=rates[name])
    rated = [one for one in best.values() if one.way.rated]
    plain = [one for one in contenders if _is_plain(one)]
    for one in plain:
        if one not in best.values():
            title = f"{one.way.engine}, plain"
            note = f"{one.way.name}; {one.remark}"
            report.add(
                "update", f"{start}: {title}", max(rates[one.title]), "M pairs/s", note=note, runs=rates[one.title]
            )
    engines = [one for one in best.values() if one.way.engine != "NumPy"]
    numpy = [one for one in best.values() if one.way.engine == "NumPy"]
    for what, field in (
        ("fastest plain peer", plain),
        ("fastest peer", rated),
        ("fastest, approximate ones too", engines),
        ("NumPy sort", numpy),
    ):
        first = max(field, key=lambda one: max(rates[one.title]))
        theirs = max(rates[first.title])
        by_median = median(rates["update"]) / max(median(rates[one.title]) for one in field)
        scratch = max(rates["scratch"]) / theirs
        note = f"{first.title}; from allocation to answer {scratch:.2f}; of medians {by_median:.2f}"
        report.add("update", f"{start}: cube / {what}", max(rates["update"]) / theirs, "times", note=note)
        report.add("update", f"{start}: cube, with the answer / {what}", scratch, "times", note=first.title)
    report.add("update", f"{start}: false negative rate", score.fnr, "%")
    report.add("update", f"{start}: false positive rate", score.fpr, "%")


class Contender(NamedTuple):
    """A query of an engine that takes part in the rounds."""

    way: Way
    ask: Ask
    seconds: float
    remark: str

    @property
    def title(self) -> str:
        """Engine and query."""
        return f"{self.way.engine}, {self.way.name}"


def _choose(case: Case, hosts: Column, peers: Column) -> list[Contender]:
    """Run every query once, check its result, and return those near the fastest of their engine.

    This also warms up the engines.
    """
    tried: list[Contender] = []
    for way in WAYS:
        way.open(hosts[:100_000], peers[:100_000])()  # Loads libraries and starts threads.
        ask = way.open(hosts, peers)
        seconds, found = timed(ask)
        score = case.score(found)
        if way.exact and (score.missed or score.false):
            raise RuntimeError(f"{way.engine}, {way.name}: {score}: the result is not exact")
        if not way.exact and score.true - score.missed < LEAST_NAMED * score.true:
            raise RuntimeError(f"{way.engine}, {way.name}: {score}: too many hosts are missing")
        remark = "answer checked" if way.exact else f"{score.missed} missed, {score.false} false"
        tried.append(Contender(way, ask, seconds, remark))
        print(f"   {tried[-1].title}: {case.pairs / seconds / 1e6:.1f} M pairs/s, {remark}", flush=True)
    fastest = {one.way.engine: min(x.seconds for x in tried if x.way.engine == one.way.engine) for one in tried}
    plain = {
        one.way.engine: min(x.seconds for x in tried if _is_plain(x) and x.way.engine == one.way.engine)
        for one in tried
        if _is_plain(one)
    }
    return [
        one
        for one in tried
        if one.seconds <= CLOSE * fastest[one.way.engine] or (_is_plain(one) and one.seconds == plain[one.way.engine])
    ]


def _is_plain(one: Contender) -> bool:
    """Return True for the query that a user would write: count distinct, n_unique, uniqExact or uniq on two columns."""
    names = (
        "count distinct",
        "distinct, count",
        "n_unique",
        "n_unique, streaming",
        "uniqExact",
        "uniqExact, Arrow",
        "uniq",
    )
    return one.way.rated and one.way.name in names
