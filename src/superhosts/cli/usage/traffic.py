"""Options of the commands that read traffic: `scan`, `watch`, `top` and `rows`."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from superhosts.cli import _options as common
from superhosts.cli._declaration import flag, opt
from superhosts.cli._values import one_of


class Scan(common.ScanTrafficOptions, common.ScanWantedOptions, common.ScanResultOptions, common.PairCubeOptions):
    """Numbers are exact while the pairs of a window fit in half of the memory. Beyond that they are estimates, each
    with a 95 % interval.

    With --slide, windows overlap: one ends with every slide, from the first that has packets to the last, and has the
    rows of a scan of its packets alone. A window with exactly the packets of the one before, as over a gap, is skipped
    and counted in the last line; of live input every window comes. Its first windows begin before the first packet.
    --save keeps a sketch of every slide; superhosts hosts --union makes a window of any length of them. With --peers it
    is decided within each slide who opened.

    Ctrl-C and SIGTERM stop it in an orderly way: the open window is reported and saved, marked as partial. A second
    signal, at least half a second later, ends it at once.

    If a sketch cannot be saved (a file of its name is damaged, or was made with other options), the file stays as it
    is, the scan goes on, and the exit status is 4.

    Examples:
        superhosts scan trace.pcap --inner 10.0.0.0/8
        tcpdump -w - | superhosts scan - --json
        superhosts scan day/*.pcap.gz --window 1h --top 20 --save sketches
        superhosts scan day/*.pcap --window 5m --slide 30s --json
        superhosts scan flows.parquet --map src=sip,dst=dip,time=begin:ms
        zcat conn.log.gz | superhosts scan - --window all
        superhosts scan netflow://0.0.0.0:2055 --inner 10.0.0.0/8
    """

    first: ClassVar = (
        *("inputs", "inner", "threshold", "top", "window", "evidence", "alerts", "save", "output", "json", "config"),
    )
    inputs: list[str] = common.INPUT
    grace: str = common.LIVE_GRACE.about("""How long after its end a window of a pipe stays open for packets that are
        late.""")
    site: str = common.SITE
    save: Path | None = common.SAVE
    fail_on_find: bool = common.FAIL_ON_FIND
    config: Path | None = common.CONFIG
    local_time: bool = common.LOCAL_TIME
    counters: str | None = common.COUNTERS
    quiet: bool = common.QUIET
    verbose: bool = common.VERBOSE


class Watch(
    common.EndlessTrafficOptions,
    common.ScanWantedOptions,
    common.EndlessResultOptions,
    common.PairCubeOptions,
    common.DashboardOptions,
    common.ServiceOptions,
):
    """On a terminal a table shows the hosts of the open window so far, the last windows, the packets per second,
    packets that were dropped, and how full the ring is. Elsewhere every window is written once, when it closes. No hub
    is needed. To capture needs rights: docs/guides/live.md says how to give them.

    Ctrl-C and SIGTERM stop it in an orderly way: the open window is reported and saved, marked as partial. A second
    signal, at least half a second later, ends it at once. SIGHUP reloads rules, lists, --threshold, --top and
    destinations, and opens the files of --output again.

    Examples:
        superhosts watch live:eth0 --inner private
        superhosts watch live:any --window 1m --top 20
        superhosts watch live:eth0 --window 5m --slide 10s
        superhosts watch live:eth0,eth1 --filter 'tcp port 22' --json
        superhosts watch live:eth0 --inner private --save sketches --web :8105
        superhosts watch live:eth0 --save sketches --keep 30d
    """

    first: ClassVar = (
        *("inputs", "inner", "threshold", "top", "window", "evidence", "alerts", "save", "output", "json", "web"),
        *("metrics", "config"),
    )
    inputs: list[str] = common.INPUT.about(f"{common.INPUTS} A folder is followed, as new files come.")
    refresh: str = common.REFRESH
    site: str = common.SITE(setting=True)
    save: Path | None = common.SAVE
    keep: str | None = common.KEEP.about("""How long the sketches of --save are kept; older ones of this site are
        removed.""")
    exact: str | None = common.EXACT(setting=True)
    counters: str | None = common.COUNTERS
    quiet: bool = common.QUIET


class Top(common.EndlessTrafficOptions, common.ScanWantedOptions, common.PairCubeOptions, common.NamesOptions):
    """A table shows the hosts of the newest window with their intervals. Keys sort and filter it, go back to older
    windows, open the past and the evidence of a host, and show alerts and sites; ? lists them. INPUT is the web address
    of a hub or watch, the state folder of a hub or a folder of saved sketches, or what watch takes: then this command
    counts by itself, and a capture file is followed while it grows. Needs the packages of the extra top.

    Examples:
        superhosts top http://127.0.0.1:8105
        superhosts top https://hub.example --token-file token
        superhosts top superhosts-hub
        superhosts top archive --threshold 500
        superhosts top live:eth0 --inner private --window 1m
    """

    inputs: list[str] = common.INPUT.about("""A web address (http://HOST:PORT), a folder of sketches, live:eth0, a
        capture that grows, or another input of watch.""")
    token_file: Path | None = opt("FILE", panel="Addresses and folders").about("""File with the token that the web
        address asks for.""")
    alerts: Path | None = common.KEPT_ALERTS(panel="Addresses and folders")
    refresh: str = common.REFRESH
    local_time: bool = common.LOCAL_TIME


ROW_FORMATS = ("ArrowStream", "JSONEachRow", "CSV", "CSVWithNames", "TabSeparated", "TabSeparatedWithNames")


class Rows(common.TrafficOptions, common.ScanWantedOptions, common.PairCubeOptions):
    """Every row that is read is a packet or a flow record. The answer is written at the end of the input, or of each
    window: the rows of superhosts scan. What is wrong goes to standard error, and then nothing is written.

    With --chunks, src and dst are arrays (Array(IPv6)), and every row is a window of its own: one value is written for
    it, an array of tuples of --columns. So an executable function of ClickHouse answers for each group of a query.

    Examples:
        superhosts rows --format CSV --schema src,dst < pairs.csv
        superhosts rows --map src=a,dst=b --columns host,peers < rows.json
    """

    format: str | None = opt("ROWS", check=one_of(*ROW_FORMATS), shown="by the first bytes", offers=ROW_FORMATS).about(
        f"Format of the rows that are read: {common.either(ROW_FORMATS)}."
    )
    window: str = common.WINDOW_OR_ALL(default="all")
    schema: str = opt("TEXT", "").about("""Names of the columns that are read, in order: 'src, dst, time'. For CSV and
        TabSeparated, which lack them.""")
    out: str | None = opt(
        "NAME", check=one_of(*ROW_FORMATS), shown="as --format; JSONEachRow for ArrowStream", offers=ROW_FORMATS
    ).about("Format of the rows that are written, one of those of --format.")
    columns: list[str] = opt(
        "LIST",
        [],
        shown="all",
        offers=("host", "peers", "peers_low", "peers_high", "family", "exact", "window_start", "window_end"),
    ).about("Columns that are written, in this order, like host,peers.")
    chunks: bool = flag().about("""A line with the number of rows is before each chunk of them, an Arrow stream
        (send_chunk_header of ClickHouse). Source and destination are arrays, and the answer to a chunk is written
        before the next is read.""")
