"""Logs that grow or come from a pipe, and logs that are cut."""

from __future__ import annotations

import gzip
import os
import threading
from pathlib import Path

import pytest

from superhosts.sources.base import Source
from superhosts.sources.open import open_all

LINES = [f"{1_700_000_000 + i}.5\tC{i}\t10.0.0.1\t1\t192.0.2.{i}\t2\ttcp\t-\t0.1\n" for i in range(20)]
HEADER = "#separator \\x09\n#fields\tts\tuid\tid.orig_h\tid.orig_p\tid.resp_h\tid.resp_p\tproto\tservice\tduration\n"


def peers(path: Path) -> tuple[list[int], Source]:
    (source,) = open_all(path)
    found = [int(peer) & 255 for block in source.blocks() for batch in block for peer in batch.dst]
    return found, source


@pytest.mark.parametrize("header", [HEADER, ""], ids=["header", "as tail shows it"])
def test_rows_of_a_pipe_come_as_they_are_written(header: str, tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    taken = threading.Semaphore(0)

    def write() -> None:
        with path.open("w", buffering=1) as pipe:
            pipe.write(header + "".join(LINES[:5]))
            pipe.flush()
            assert taken.acquire(timeout=60)  # the reader has rows although the pipe is open
            pipe.write(LINES[5] + LINES[6][:20])
            pipe.flush()
            assert taken.acquire(timeout=60)
            pipe.write(LINES[6][20:])

    thread = threading.Thread(target=write)
    thread.start()
    (source,) = open_all(path)
    found: list[int] = []
    for block in source.blocks():
        found += [int(peer) & 255 for batch in block for peer in batch.dst]
        if len(found) in (5, 6):
            taken.release()
    thread.join()
    assert found == list(range(7))
    assert source.counters.bad_rows == 0


def test_a_log_that_is_cut_is_read_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "conn.log"
    path.write_text(HEADER + "".join(LINES) + LINES[0][:30])
    found, source = peers(path)
    assert (found, source.counters.bad_rows) == (list(range(20)), 1)
    assert "the input ends inside this line" in source.counters.warnings[0]
    path = tmp_path / "conn.log.gz"
    path.write_bytes(gzip.compress((HEADER + "".join(LINES)).encode())[:-20])
    found, source = peers(path)
    assert found == list(range(len(found)))
    assert source.counters.truncated_files == 1
    assert any("what came before counts" in text for text in source.counters.warnings)
