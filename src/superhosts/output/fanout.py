"""All destinations of one run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace

from superhosts.core.pairs import Window
from superhosts.errors import OutputError, SuperhostsError, internal_error
from superhosts.jit.memory import is_out_of_memory
from superhosts.output.base import Destination, DestinationCounters, Report
from superhosts.output.names.annotator import Annotator
from superhosts.output.rows import Row
from superhosts.output.stdout import STANDARD_OUTPUT, StandardOutput


class Destinations:
    """Hands every report to all destinations of a run.

    A destination that fails does not keep a report from the others. A report that is handed in again, after a failure,
    goes only to the destinations that do not have it yet.
    """

    def __init__(self, destinations: Sequence[Destination], annotator: Annotator | None = None) -> None:
        self._destinations = list(destinations)
        # Told of a destination that has failed, which the rest of the run does without; None: the failure is raised.
        self.on_error: Callable[[OutputError], None] | None = None
        self._annotator = annotator  # adds to rows what is known of their hosts
        # Reports that some destination failed to write, and the destinations that have them.
        self._written: dict[tuple[Window | None, int], set[Destination]] = {}

    def add(self, destination: Destination) -> None:
        """Hand reports to one more destination."""
        self._destinations.append(destination)

    def each(self) -> list[Destination]:
        """Return all destinations."""
        return list(self._destinations)

    def exchange(self, wanted: Sequence[Destination]) -> list[Destination]:
        """Hand reports to these instead of those that were opened for addresses; return the ones that are left."""
        kept = [each for each in self._destinations if each.opened_as is None]
        left = [each for each in self._destinations if each.opened_as is not None and each not in wanted]
        self._destinations = [*wanted, *kept]
        return left

    def outlive_reader(self) -> None:
        """Let the run go on when the reader of standard output goes away: its results are wanted elsewhere, too."""
        for destination in self._destinations:
            if isinstance(destination, StandardOutput):
                destination.outlives_reader = True

    def write(self, report: Report) -> None:
        """Hand a report to every destination that does not have it; then raise the first error, if any failed."""
        report = replace(report, rows=self.annotated(report.rows))
        identity = (report.window, report.revision)
        written = self._written.setdefault(identity, set())

        def write(destination: Destination) -> None:
            if destination not in written:
                destination.write(report)
                written.add(destination)

        failed = dict(_errors(write, self._destinations))
        # Without the reader of its standard output the run ends, too.
        ends = any(isinstance(error, BrokenPipeError) for error in failed.values())
        if self.on_error is None or ends or len(failed) == len(self._destinations):
            _raise(failed.values())
        else:
            for destination, error in failed.items():
                self._destinations.remove(destination)
                self.on_error(error if isinstance(error, OutputError) else OutputError(f"{destination.name}: {error}"))
                list(_errors(lambda each: each.abandon(), [destination]))  # a second error says nothing new
        del self._written[identity]

    def annotated(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Return rows with what is known of their hosts."""
        return rows if self._annotator is None else self._annotator.annotated(rows)

    def reopen(self) -> None:
        """Open files again that another program may have moved away, and read names of hosts again."""
        self._for_each(lambda destination: destination.reopen())
        if self._annotator is not None:
            self._annotator.reload()

    def status(self, name: str) -> dict[str, int]:
        """Return the counters of a destination; all are zero if the run does not have it."""
        found = [destination.status() for destination in self._destinations if destination.name == name]
        return found[0] if found else asdict(DestinationCounters())

    def all_status(self) -> dict[str, dict[str, int]]:
        """Return the counters of all destinations but standard output, by their names."""
        others = (each for each in self._destinations if each.name != STANDARD_OUTPUT)
        return {destination.name: destination.status() for destination in others}

    def __enter__(self) -> Destinations:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or kind is KeyboardInterrupt:  # a live scan ends like this, and its windows are whole
            self._for_each(lambda destination: destination.close())
        else:
            self._for_each(lambda destination: destination.abandon())

    def _for_each(self, act: Callable[[Destination], None]) -> None:
        """Act on every destination, even when one fails; then raise the first error."""
        _raise(error for _, error in _errors(act, self._destinations))


def _errors(
    act: Callable[[Destination], None], destinations: Iterable[Destination]
) -> Iterator[tuple[Destination, Exception]]:
    """Act on every destination; yield those that fail. Any exception of one is an OutputError that names it."""
    for destination in destinations:
        try:
            act(destination)
        except (OSError, OutputError) as error:
            yield destination, error
        except SuperhostsError:
            raise
        except Exception as error:
            if isinstance(error, MemoryError) and is_out_of_memory():
                raise
            named = OutputError(f"{destination.name}: {internal_error(error)}")
            named.__cause__ = error
            yield destination, named


def _raise(found: Iterable[Exception]) -> None:
    errors = list(found)
    if len(errors) > 1:
        raise OutputError("; ".join(map(str, errors))) from errors[0]
    if errors:
        raise errors[0]
