"""`superhosts rows`: rows on standard input, rows of super hosts on standard output."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import replace

import typer

from superhosts.cli._grouped import answer_groups
from superhosts.cli._keys import key_for_sketches
from superhosts.cli._rowinput import RowInput
from superhosts.cli._settings import make_settings
from superhosts.cli._signals import Interruption
from superhosts.cli._summary import RunTotals, tell_end
from superhosts.cli.usage.rows import RowOptions, Rows
from superhosts.errors import OutputError, UsageError
from superhosts.output.formats import FORMATS, RowWriter, check_columns
from superhosts.output.report import Row, make_rows
from superhosts.output.streams import ClosedOutput, silence_stdout, stdout_error
from superhosts.pipeline.scan import Scan, scan_options
from superhosts.pipeline.settings import Settings

WRITTEN = "JSONEachRow"  # in place of a format that is only read
PIPE_BYTES = 1 << 20  # that a pipe should hold: the default of 64 KiB makes sixteen times as many small reads


def rows(options: Rows) -> None:
    """Read rows, and write the answer in the end."""
    settings = make_settings(
        options.traffic, options.wanted, options.cube, memory_total=options.memory_total, device=options.device
    )
    columns = check_columns(options.rows.columns)
    given = RowInput(options.traffic.tables.format, options.rows.schema, options.traffic.tables.read())
    out = _written(options.rows, given)
    if isinstance(sys.stdout, ClosedOutput):
        raise OutputError("standard output is closed")
    settings = replace(settings, key=key_for_sketches(options.cube.key_file, saves=False))
    _widen_pipe()
    stream = sys.stdout.buffer
    with suppress(BrokenPipeError):  # the reader wants no more
        try:
            if given.grouped:
                answer_groups(given, settings, columns, stream, chunks=options.rows.chunks)
            else:
                _answer(given, settings, RowWriter(out, columns, stream))
        except BrokenPipeError:
            silence_stdout()
            raise
        except OSError as error:
            silence_stdout()
            raise stdout_error(error) from error


def _written(options: RowOptions, given: RowInput) -> str:
    """Return the format of the rows that are written."""
    if options.chunks and not given.grouped:
        raise UsageError("--chunks: only with arrays in --schema: other rows have one answer, at their end")
    if given.grouped and options.out not in (None, given.format):
        raise UsageError(f"--out {options.out}: arrays are answered in {given.format}")
    out = options.out or (WRITTEN if given.format == "ArrowStream" else given.format)
    if out == "ArrowStream":
        raise UsageError("--out ArrowStream: rows are not written in it; use RowBinary or JSONEachRow")
    if out not in FORMATS:
        raise UsageError(f"--out {out}: no such format; use {', '.join(FORMATS)}")
    return out


def _answer(given: RowInput, settings: Settings, writer: RowWriter) -> None:
    source = given.open()
    run = Scan([source], settings, replace(scan_options([source], settings, joins_short=False), leaves_open=False))
    with Interruption(run.stop) as interruption:
        for result in run:
            if interruption.number is None:  # else some of the rows are missing
                found: list[Row] = make_rows(result.window if given.has_time else None, result.found)
                writer.write(found)
            del result  # frees its cubes
        if interruption.number is None:
            writer.write([])  # the header, if no window came
    tell_end(RunTotals(run.counters, 0.0, 0, ""), quiet=True)
    if interruption.number is not None:
        raise typer.Exit(128 + interruption.number)


def _widen_pipe() -> None:
    """Let a pipe on standard input hold more, where the system allows it."""
    with suppress(ImportError, OSError, AttributeError, ValueError):
        import fcntl

        fcntl.fcntl(sys.stdin.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
