"""Connects to a Dask cluster, and checks versions and that all workers see the work folder."""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from superhosts._version import __version__
from superhosts.device import thread_count
from superhosts.errors import MissingExtraError, OutputError, UsageError

PATIENCE = 10  # seconds to wait for a scheduler, and for a first worker


@contextmanager
def connect(scheduler: str | None, workers: int | None = None) -> Iterator[Any]:
    """Yield a client of the cluster at an address; without one, of a cluster of processes on this machine."""
    before = logging.root.manager.disable
    logging.disable()  # Dask logs tracebacks of everything that it recovers from; real failures are raised
    try:
        with _reached(scheduler) if scheduler is not None else _started(workers) as client:
            yield client
    finally:
        logging.disable(before)


@contextmanager
def _started(workers: int | None) -> Iterator[Any]:
    dask = _import_dask()
    count = thread_count() if workers is None else workers
    try:
        cluster = dask.LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",  # a free port; the usual one may be taken
            memory_limit=0,  # cubes have a fixed size; a guessed limit would kill workers
            silence_logs=logging.CRITICAL,
        )
    except (RuntimeError, OSError) as error:  # a worker died, or the system has no more processes or files
        raise UsageError(
            f"--local: {count} worker process{'es' * (count != 1)} cannot be started: {str(error).rstrip('.')}; "
            "out of memory? try fewer --workers"
        ) from None
    with cluster, dask.Client(cluster, set_as_default=False) as client:
        yield client


@contextmanager
def _reached(scheduler: str) -> Iterator[Any]:
    try:
        client = _import_dask().Client(scheduler, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:  # a timeout is an OSError too
        raise UsageError(f"--scheduler {scheduler}: cannot be reached: {error}") from None
    with client:
        yield client


def _import_dask() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise MissingExtraError("the batch command", "batch") from error
    return distributed


def check_workers(client: Any, folder: Path, sample: str | None) -> dict[str, int]:
    """Raise if a cluster cannot do the work; return for each worker how many threads its cubes may use.

    `sample` is a path that every worker should see, too: one of the inputs.
    """
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
    except OSError:
        raise UsageError(f"the cluster at {client.scheduler.address} has no workers") from None
    word = uuid.uuid4().hex
    probe = folder / f".probe.{word}"
    try:
        probe.write_text(word)
    except OSError as error:
        raise OutputError(f"--work {folder}: cannot be written: {error.strerror or error}") from None
    try:
        answers = client.run(_question(str(probe), word, sample), on_error="return")
    finally:
        probe.unlink(missing_ok=True)
    for address, answer in answers.items():
        _check(address, answer, folder, sample)
    slots: Counter[str] = Counter()
    for address, count in client.nthreads().items():
        if address in answers:
            slots[answers[address]["machine"]] += count
    return {a: max(1, answer["cores"] // max(1, slots[answer["machine"]])) for a, answer in answers.items()}


def _question(probe: str, word: str, sample: str | None) -> Callable[[], dict[str, Any]]:
    """Return the check that a worker runs. It is sent as code, not by name: a worker may not have this package."""

    def answer() -> dict[str, Any]:
        import os
        import socket
        from pathlib import Path

        try:
            from superhosts._version import __version__ as version
        except ImportError:
            return {"version": None}
        try:
            from superhosts.device import thread_count

            cores = thread_count()
        except ImportError:  # another version, which will be refused
            cores = 1
        place = Path(probe)
        return {
            "version": version,
            "machine": socket.gethostname(),
            "cores": cores,
            "sees": place.exists() and place.read_text() == word,
            "writes": os.access(place.parent, os.W_OK),
            "reads": sample is None or os.access(sample, os.R_OK),
        }

    return answer


def _check(address: str, answer: Any, folder: Path, sample: str | None) -> None:
    if isinstance(answer, BaseException):
        raise UsageError(f"worker {address} cannot work with this client: {type(answer).__name__}: {answer}")
    if answer["version"] is None:
        raise UsageError(f"worker {address} has no superhosts: pip install superhosts=={__version__} there")
    if answer["version"] != __version__:
        raise UsageError(
            f"worker {address} has superhosts {answer['version']}, this client {__version__}: install the same"
        )
    if not answer["sees"]:
        raise UsageError(f"--work {folder}: worker {address} does not see it; name a folder that all workers share")
    if not answer["writes"]:
        raise OutputError(f"--work {folder}: worker {address} may not write there")
    if not answer["reads"]:
        raise UsageError(f"{sample}: worker {address} cannot read it; inputs lie in a shared folder or behind URLs")
