"""Ask the endpoint of a command that runs, as Prometheus and probes do."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from processes import Node
from waiting import DEADLINE, wait_for

Labels = frozenset[tuple[str, str]]


class Answer(NamedTuple):
    status: int
    text: str
    kind: str = ""


class Samples(dict[tuple[str, Labels], float]):
    def of(self, name: str, **labels: str) -> float:
        return self[f"superhosts_{name}", frozenset(labels.items())]

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self}


def endpoint(node: Node) -> str:
    """Return the address of a command that was started with `--metrics :0`."""
    found = wait_for(lambda: re.search(r"metrics at (http://\S+)/metrics", node.words), lambda: node.words)
    return str(found[1])


def ask(url: str) -> Answer:
    try:
        with urllib.request.urlopen(url, timeout=DEADLINE) as answer:
            return Answer(answer.status, answer.read().decode(), answer.headers["Content-Type"])
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.read().decode())


def samples_of(text: str) -> Samples:
    families = list(text_string_to_metric_families(text))
    names = [family.name for family in families]
    assert len(names) == len(set(names))  # or Prometheus refuses all of it
    found = Samples()
    for family in families:
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found, key
            found[key] = sample.value
    return found


def scrape(node: Node) -> Samples:
    answer = ask(f"{endpoint(node)}/metrics")
    assert answer.status == 200, answer
    return samples_of(answer.text)
