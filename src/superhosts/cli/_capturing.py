"""What commands do with live captures: the filter, and warnings that cannot wait for the end of the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from superhosts.cli._console import say
from superhosts.core.notices import as_warning
from superhosts.pipeline.scan import Counters
from superhosts.sources.base import Source


def use_filter(sources: Sequence[Source], expression: str | None) -> None:
    """Let live captures take only packets that match; UsageError if the expression or another input is wrong."""
    if expression is not None:
        for source in sources:
            source.use_filter(expression)


class LiveWarnings:
    """Writes warnings of live captures when they come: such a run may last for days."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._said: set[str] = set()
        for source in sources:
            if source.loses:
                source.counters.on_warning = self._say

    def _say(self, text: str) -> None:
        self._said.add(text)
        say(as_warning(text))

    def left(self, counters: Counters) -> Counters:
        """Return counters without the warnings that were written already."""
        return replace(counters, warnings=[text for text in counters.warnings if text not in self._said])
