"""Options of the commands that read saved sketches: `hosts`, `report`, `web`, `explain` and `merge`."""

from __future__ import annotations

from dataclasses import MISSING
from pathlib import Path

from superhosts.cli import _options as common
from superhosts.cli._declaration import Options, arg, flag, opt
from superhosts.core import defaults
from superhosts.core.units import parse_duration, parse_place
from superhosts.errors import UsageError


class OnlyOptions(Options, panel="Filters"):
    site: list[str] = opt("LIST", [], offers="superhosts.cli._sketches:sites_of_sketches").about("""Only sketches of
        these sites, like ams,fra.""")
    prefix: list[str] = opt("LIST", [], check=list).about("Only hosts in these prefixes, or in those of @FILE.")
    side: list[str] = opt("LIST", [], offers=common.SIDES).about("Only hosts of this side: inner or outer.")
    direction: list[str] = common.DIRECTION(default=[]).about("""Only numbers of these packets: any, out (sent by the
        host) or in; or of contacts: opened, answered, unanswered, and with -in at the end those that the peer
        opened.""")


class Hosts(common.SketchOptions, common.TimeOptions, OnlyOptions, common.WantedOptions, common.ResultOptions):
    """Rows say of which site and window they are. With --window 1h the sketches of an hour are merged, for each site;
    with --union, too, for all sites together; with --union alone everything is one answer.

    Examples:
        superhosts hosts archive --since 1h --threshold 500
        superhosts hosts archive --window 1h --site ams,fra --top 10
        superhosts hosts 'archive/**/*.cube' --union --threshold 5000
        superhosts hosts archive --union --top 20 --plot hosts.pdf
    """

    union: bool = flag().about("Merge all files first: a longer window, or more sites.")
    window: str | None = common.WINDOW(default=None).about("""Merge the sketches within windows of this length: 1h, 30d;
        not shorter than theirs.""")
    plot: Path | None = common.PLOT
    fail_on_find: bool = common.FAIL_ON_FIND
    local_time: bool = common.LOCAL_TIME


class Report(common.NamesOptions):
    """The folder is that of --save, or a hub's archive. New are super hosts that were none in as long a time before;
    risen, with half as many peers again by the medians; persistent, in at least half of the windows; gone, those that
    are none now. The page has figures, too, and needs no other file. Without --output, the report is text.

    A window that cannot be read is left out, and the exit status is 3. Large folders are asked for five minutes; then
    the report says how many windows it lacks.

    Examples:
        superhosts report sketches
        superhosts report sketches --last 24h -o report.html
        superhosts report archive --last 7d --until 2026-11-16 -o week.html
        superhosts report sketches -o 'smtp://mail.example.net/?to=noc@example.net'
    """

    folder: Path = arg("DIR").about("Folder of saved sketches, with all folders in it.")
    last: str = opt("DURATION", "24h", check=parse_duration, offers=("24h", "7d", "30d")).about("The time to report.")
    until: str | None = opt("TIME", shown="now").about("The end of that time: 2026-11-14T12:00 (UTC), or 1d.")
    threshold: float | None = common.THRESHOLD(default=None, shown=f"{defaults.THRESHOLD}")
    output: list[str] = common.OUTPUT.about("""Write the page to FILE.html, which is replaced, or mail it to
        smtp://HOST/?to=…; @FILE holds addresses with secrets. May be given several times.""")
    json: bool = common.JSON_OBJECT
    key_file: Path | None = common.SKETCH_KEY_FILE
    local_time: bool = common.LOCAL_TIME


class Web(common.ScanWantedOptions, common.NamesOptions, common.DashboardOptions):
    """The folder is that of --save, or a hub's archive; nothing in it is changed, and new sketches appear as they come.
    Of a hub's own folder (--state), the sites are shown, too. A program that runs shows itself: superhosts hub --web,
    superhosts watch --web. Ctrl-C ends it.

    Examples:
        superhosts web archive
        superhosts web archive --threshold 500 --labels hosts.csv
        superhosts web archive --web 0.0.0.0:8105 --web-token-file token
    """

    folder: Path = arg("DIR").about("Folder of saved sketches, with all folders in it.")
    web: str = opt("HOST:PORT", "127.0.0.1:8105", check=parse_place, old="--listen").about("""Where browsers find it. At
        an address that others reach, like 0.0.0.0:8105, a token is asked for.""")
    alerts: Path | None = common.KEPT_ALERTS
    key_file: Path | None = common.SKETCH_KEY_FILE
    log_format: str = common.LOG_FORMAT


class Explain(common.SketchOptions, common.TimeOptions, common.ResultOptions):
    """With several files: the host over time and sites, and its number in the union of them all. --plot draws the
    columns, or the host over time.

    Examples:
        superhosts explain 20261114T120000Z-5m-local.cube 10.1.2.3
        superhosts explain archive 10.1.2.3 --since 1d --plot host.svg
    """

    host: str = arg("HOST").about("An address, or a prefix where hosts are prefixes.")
    plot: Path | None = common.PLOT
    local_time: bool = common.LOCAL_TIME


def _one_output(values: list[str]) -> list[str]:
    if len(values) > 1:  # of two, the first would silently not be written
        raise UsageError(f"given {len(values)} times; results go to one place, so give it once")
    return values


class Merge(common.SketchOptions):
    """The sketches are of other sites or windows; key and geometry must be the same. If any file cannot be merged,
    nothing is written, and every such file is named.

    Example: superhosts merge ams.cube fra.cube -o all.cube
    """

    output: list[str] = opt("FILE", MISSING, check=_one_output, short="-o").about("Write the union to this .cube file.")
