"""Connect to a Dask cluster, and check that its workers have the same version and share the work folder."""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from superhosts import __version__
from superhosts.core.device import thread_count
from superhosts.core.text import counted
from superhosts.errors import MissingExtraError, OutputError, UsageError

TIMEOUT = 10  # seconds to wait for the scheduler, and for the first worker, unless another timeout is given


@contextmanager
def connect(scheduler: str | None, workers: int | None = None, *, timeout: float | None = None) -> Iterator[Any]:
    """Yield a client of the cluster at `scheduler`, or without one, of local worker processes."""
    before = logging.root.manager.disable
    # Dask logs a traceback of every error that it recovers from. Errors that matter are raised as ours.
    logging.disable()
    try:
        with _connect_to(scheduler, timeout) if scheduler is not None else _start_local(workers) as client:
            yield client
    finally:
        logging.disable(before)


@contextmanager
def _start_local(workers: int | None) -> Iterator[Any]:
    dask = _import_dask()
    count = thread_count() if workers is None else workers
    try:
        cluster = dask.LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",  # any free port, as the default port may be in use
            memory_limit=0,  # Cubes have a fixed size, and Dask's default limit would kill workers.
            silence_logs=logging.CRITICAL,
        )
    except (RuntimeError, OSError) as error:  # A worker died, or the system refused a process or a file.
        processes = counted(count, "worker process", "worker processes")
        raise UsageError(
            f"--local: {processes} cannot be started: {str(error).rstrip('.')}; out of memory? try fewer --workers"
        ) from None
    with cluster, dask.Client(cluster, set_as_default=False) as client:
        yield client


@contextmanager
def _connect_to(scheduler: str, timeout: float | None) -> Iterator[Any]:
    try:
        client = _import_dask().Client(scheduler, timeout=timeout or TIMEOUT, set_as_default=False)
    except (OSError, ValueError) as error:  # A timeout is an OSError, too.
        raise UsageError(f"--scheduler {scheduler}: cannot be reached: {error}") from None
    with client:
        yield client


def _import_dask() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise MissingExtraError("the batch command", "batch") from error
    return distributed


def check_workers(client: Any, folder: Path, sample: str | None, *, timeout: float | None = None) -> dict[str, int]:
    """Return for each worker how many threads its cubes may use. Raise an error if a worker is unsuitable.

    `sample` is the path of an input, which every worker must be able to read.
    """
    try:
        client.wait_for_workers(1, timeout=timeout or TIMEOUT)
    except OSError:
        raise UsageError(f"the cluster at {client.scheduler.address} has no workers; start some") from None
    token = uuid.uuid4().hex
    probe = folder / f".probe.{token}"
    try:
        probe.write_text(token)
    except OSError as error:
        raise OutputError(f"--work {folder}: cannot be written: {error.strerror or error}") from None
    try:
        answers = client.run(_worker_check(str(probe), token, sample), on_error="return")
    finally:
        probe.unlink(missing_ok=True)
    for address, answer in answers.items():
        _check_answer(address, answer, folder, sample)
    slots: Counter[str] = Counter()
    for address, count in client.nthreads().items():
        if address in answers:
            slots[answers[address]["machine"]] += count
    return {a: max(1, answer["cores"] // max(1, slots[answer["machine"]])) for a, answer in answers.items()}


def _worker_check(probe: str, token: str, sample: str | None) -> Callable[[], dict[str, Any]]:
    """Return a function to run on every worker.

    Dask sends a nested function as code, not by name, so it runs even on a worker that does not have this package.
    """

    def answer() -> dict[str, Any]:
        import os
        import socket
        from pathlib import Path

        try:
            from superhosts import __version__ as version
        except ImportError:
            return {"version": None}
        try:
            from superhosts.core.device import thread_count

            cores = thread_count()
        except ImportError:  # This is another version, which the client rejects.
            cores = 1
        file = Path(probe)
        return {
            "version": version,
            "machine": socket.gethostname(),
            "cores": cores,
            "sees": file.exists() and file.read_text() == token,
            "writes": os.access(file.parent, os.W_OK),
            "reads": sample is None or os.access(sample, os.R_OK),
        }

    return answer


def _check_answer(address: str, answer: Any, folder: Path, sample: str | None) -> None:
    if isinstance(answer, BaseException):
        raise UsageError(f"worker {address} is incompatible with this client: {type(answer).__name__}: {answer}")
    if answer["version"] is None:
        raise UsageError(f"worker {address} does not have superhosts: run pip install superhosts=={__version__} there")
    if answer["version"] != __version__:
        raise UsageError(
            f"worker {address} has superhosts {answer['version']}, this client has {__version__}: "
            "install the same version"
        )
    if not answer["sees"]:
        raise UsageError(f"--work {folder}: worker {address} does not see it; use a folder that all workers share")
    if not answer["writes"]:
        raise OutputError(f"--work {folder}: worker {address} cannot write to it")
    if not answer["reads"]:
        raise UsageError(f"{sample}: worker {address} cannot read it; use inputs in a shared folder, or URLs")
