"""From a row to its verdict: the summary of a host's sampled pairs, and the pattern that it has."""

from __future__ import annotations

import ipaddress
from typing import Any

from superhosts.core.pairs import Host, Part, without_port
from superhosts.sketch.evidence.patterns import Verdict, judge
from superhosts.sketch.evidence.sample import Evidence
from superhosts.sketch.evidence.summary import Summaries


class Judge:
    """Answers for the sample of one window."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._summaries: dict[int, Summaries] = evidence.summaries

    def verdict(self, host: Host, part: Part) -> Verdict:
        """Return what the pairs of a host look like."""
        address = without_port(str(host))
        network = ipaddress.ip_network(address)
        if network.version not in self._summaries:
            self._summaries[network.version] = Summaries(self._evidence, network.version)
        summary = self._summaries[network.version].of(network, part)
        if address != str(host) or part.counts != "hosts":
            return Verdict(None, "evidence is about whole addresses and their peers", summary)
        return judge(summary)

    def fields(self, host: Host, part: Part) -> dict[str, Any]:
        """Return what a row says of its host."""
        verdict = self.verdict(host, part)
        return {"pattern": verdict.pattern, "reason": verdict.reason, "evidence": verdict.summary.fields()}


def judge_of(evidence: Evidence | None) -> Judge | None:
    """Return who judges by some evidence; None without."""
    return None if evidence is None else Judge(evidence)
