"""Options of the commands that set up and check: `key …`, `alerts …`, `acts …`, `config …` and `doctor`."""

from __future__ import annotations

from pathlib import Path

from superhosts.cli import _options as common
from superhosts.cli._config import COMMANDS
from superhosts.cli._declaration import Options, arg, flag, opt
from superhosts.cli._values import one_of

ALERTS_FILE = arg("FILE").about("The file in which a run keeps its alerts.")
LEDGER = arg("LEDGER").about("The ledger of a run's acts, or the file of its alerts, beside which it is.")
ALERTS_RULE = opt("NAME").about("Only this rule.")
KEEP_FROM = 819.0
CONFIG_FILE = arg("FILE").about("The configuration file.")


class KeyNew(Options):
    """All sites of a fleet need the same key: copy the file to each of them and give it with --key-file. Without FILE,
    the key becomes your own, which commands use if no other is given. A sketch can be queried only with the key that it
    was written with, so keep old keys as long as their sketches.

    Example: superhosts key new /etc/superhosts/key
    """

    file: Path | None = arg("FILE", None, shown=False).about("The file to make.")
    force: bool = common.FORCE.about("Replace a key that exists.")


class KeyShow(Options):
    """Two sites can merge their sketches if the fingerprints are equal.

    Examples:
        superhosts key show
        superhosts key show /etc/superhosts/key
    """

    file: Path | None = arg("FILE", None, shown=False).about("A key file, or `public` for the public key.")
    json: bool = common.JSON_OBJECT


class AlertsList(Options):
    """By state: open, acknowledged, muted, closed; of each, those with the most peers come first.

    Examples:
        superhosts alerts list alerts.sqlite
        superhosts alerts list alerts.sqlite --all --json
    """

    file: Path = ALERTS_FILE
    all: bool = flag().about("Closed alerts, too.")
    rule: str | None = ALERTS_RULE
    json: bool = common.JSON


class AlertsShow(Options):
    """
    Examples:
        superhosts alerts show alerts.sqlite 203.0.113.66
        superhosts alerts show alerts.sqlite 4f1c9a7be2d0
    """

    file: Path = ALERTS_FILE
    alert: str = arg("ALERT").about("A host, or the id of an alert.")
    json: bool = common.JSON


BY = opt("NAME", shown="your login name").about("Who says so, for others.")


class AlertsAcknowledge(Options):
    """The sentence of each later message says by whom. What has grown is told all the same: mute a host to hear no
    more.

    Examples:
        superhosts alerts acknowledge alerts.sqlite 10.0.0.9 --note 'a backup'
        superhosts alerts acknowledge alerts.sqlite 4f1c9a7be2d0 --by ana
        superhosts alerts acknowledge alerts.sqlite 203.0.113.66 --off
    """

    file: Path = ALERTS_FILE
    alert: list[str] = arg("ALERT...").about("Hosts with open alerts, or ids of alerts.")
    by: str | None = BY
    note: str = opt("NOTE", "").about("A note for others.")
    off: bool = flag().about("Nobody looks at them any more.")


class AlertsNote(Options):
    """An empty text removes the owner or the note.

    Examples:
        superhosts alerts note alerts.sqlite 203.0.113.66 --owner ana
        superhosts alerts note alerts.sqlite 4f1c9a7be2d0 --note 'ticket 4711'
    """

    file: Path = ALERTS_FILE
    alert: str = arg("ALERT").about("A host with an open alert, or the id of an alert.")
    owner: str | None = opt("NAME").about("Who cares for it.")
    note: str | None = opt("NOTE").about("A note for others.")
    by: str | None = BY


class AlertsLearn(Options):
    """For rules with baseline = "week". Windows that the run or an earlier call has learned are left out, so it may be
    called again.

    Examples:
        superhosts alerts learn alerts.sqlite archive
        superhosts alerts learn alerts.sqlite archive --threshold 40
    """

    file: Path = ALERTS_FILE
    folder: Path = arg("DIR").about("Folder of saved sketches: of a scan or watch, or a hub's archive.")
    threshold: float = common.THRESHOLD(default=KEEP_FROM, shown="819, 80 % of the default rule's 1024").about(
        "Least number of peers of hosts to learn: as few as the run reports, 80 % of the lowest threshold of its rules."
    )
    key_file: Path | None = common.SKETCH_KEY_FILE


class AlertsMute(Options):
    """The file is made if there is none, for a run that comes later.

    Examples:
        superhosts alerts mute alerts.sqlite 10.0.0.53 --why 'our resolver'
        superhosts alerts mute alerts.sqlite 192.0.2.0/24 --for 8h --rule scan-out
        superhosts alerts mute alerts.sqlite 10.0.0.53 --off
    """

    file: Path = ALERTS_FILE
    host: str = arg("HOST").about("An address or a prefix.")
    duration: str = opt("DURATION", "30d", name="--for", offers=("1h", "8h", "1d", "7d", "30d")).about("For how long.")
    rule: str | None = ALERTS_RULE
    why: str = opt("NOTE", "").about("A note for others.")
    by: str | None = BY
    off: bool = flag().about("Want alerts again.")


class AlertsExport(Options):
    """
    Examples:
        superhosts alerts export alerts.sqlite
        superhosts alerts export alerts.sqlite | jq .host
    """

    file: Path = ALERTS_FILE


class ActsList(Options):
    """
    Examples:
        superhosts acts list alerts.acts.sqlite
        superhosts acts list alerts.acts.sqlite --audit --json
    """

    file: Path = LEDGER
    all: bool = flag().about("Also acts that are over or were refused while their alert is open.")
    audit: bool = flag().about("Everything that was done, the oldest first.")
    json: bool = common.JSON


class ActsWithdraw(Options):
    """A run that goes on withdraws them and does not act against these hosts again until a new alert. Without a run
    this command withdraws them itself.

    Examples:
        superhosts acts withdraw alerts.acts.sqlite 203.0.113.66
        superhosts acts withdraw alerts.acts.sqlite --all
    """

    file: Path = LEDGER
    host: str | None = arg("HOST", None).about("An address, or a prefix of hosts.")
    all: bool = flag().about("Everything that is in force.")


class ConfigInit(Options):
    """
    Examples:
        superhosts config init superhosts.toml
        superhosts config init -
    """

    file: Path = arg("FILE", Path("superhosts.toml")).about("The file to write; - for standard output.")
    force: bool = common.FORCE


class ConfigCheck(Options):
    """What is wrong is named with its key and its value, and the exit status is 2.

    Examples:
        superhosts config check superhosts.toml
    """

    file: Path = CONFIG_FILE


class ConfigShow(Options):
    """
    Examples:
        superhosts config show superhosts.toml hub
        SUPERHOSTS_HUB_THRESHOLD=500 superhosts config show superhosts.toml hub
    """

    file: Path = CONFIG_FILE
    command: str = arg("COMMAND", "scan", check=one_of(*COMMANDS), offers=COMMANDS).about(f"{common.either(COMMANDS)}.")


class Doctor(Options):
    """Each line says what works, or what to do about it. A small cube is filled on the CPU and on every GPU; they must
    agree bit by bit. What is reported as missing is optional. The exit status is 2 if something is installed and does
    not work.

    Examples:
        superhosts doctor
        superhosts doctor --compile
    """

    compile: bool = flag().about("First compile all that commands use and that is not on disk.")
    json: bool = common.JSON_OBJECT
