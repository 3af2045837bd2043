"""Acts: destinations of alerts that do something against hosts, all of them with the same manners.

What is wanted follows from the alerts that are open (`keep_open`), never from single events: a host is acted against
while an alert of it is open and may be acted upon. The ledger, a SQLite file beside the file of alerts, has what was
begun, what is in force and what is to be undone. It is written before anything is done, so whatever a program that dies
leaves behind is in it: the next run puts in force again what is still wanted, and withdraws everything else.

    begun ──► in force ──► ending ──► (forgotten), or over while the alert stays open
      └───────────────────────▲        refused: the cap, never-act, or an old alert

`Actor` is the means (a firewall, BGP, a program), in `senders/`: it puts acts in force, which must be repeatable, and
withdraws them, which must succeed for what is not in force. `Acting` has the manners: it does nothing without
`act=true`, obeys never-act again, has at most `most` acts in force, ends each after `expires`, repeats what failed, and
writes a line for everything into the log and into the ledger. One process holds a ledger; `superhosts acts` asks it.
"""

from __future__ import annotations

import ipaddress
import json
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, TypedDict

from superhosts.core.database import Database, Format
from superhosts.core.files import hold_file, output_errors
from superhosts.core.notices import WARNING, Notice
from superhosts.core.pairs import Network
from superhosts.core.text import counted, printable
from superhosts.core.times import clock_time, iso_time
from superhosts.core.units import SECOND
from superhosts.errors import InputError, OutputError, UsageError, internal_error
from superhosts.output.alerts.rules import contains, never_act
from superhosts.output.delivery import LAST_MOMENT, DeliveryOptions
from superhosts.output.destination import Destination, RunKind
from superhosts.output.records import GROWN, Batch, Record
from superhosts.output.report import Report, Row
from superhosts.output.senders import Address, PermanentError, Sender, TemporaryError, reason_of

BEGUN, IN_FORCE, ENDING, OVER, REFUSED = "begun", "in force", "ending", "over", "refused"
HELD = (BEGUN, IN_FORCE, ENDING)  # states in which something is in force, or may be
CLOSED, EXPIRED, ENDED = "its alert is closed", "expired", "the run ends"
FORBIDDEN, NOT_WANTED, BY_PERSON = "no act is allowed any more", "the destination only tries", "withdrawn by a person"
RETIRED = "no run acts there any more"
AGAIN = {CLOSED, ENDED, FORBIDDEN, NOT_WANTED, RETIRED}  # after which the same host may be acted against at once
POLL = 1.0  # seconds between two looks at the ledger
REPEAT = 60.0  # seconds after which acts in force are put in force again: a firewall or a router may have lost them
HOLDING = 5.0  # seconds that a run waits for another one to give the ledger up
MOST_AUDIT = 100_000  # lines that the ledger keeps
FORMAT = Format(
    what="a ledger of acts",
    version=1,
    table="acts",
    schema="""
CREATE TABLE IF NOT EXISTS acts (place TEXT NOT NULL, host TEXT NOT NULL, state TEXT NOT NULL, dry INTEGER NOT NULL,
    since REAL NOT NULL, expires REAL NOT NULL, why TEXT NOT NULL, address TEXT NOT NULL, record TEXT NOT NULL,
    PRIMARY KEY (place, host)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS audit (number INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, place TEXT NOT NULL,
    host TEXT NOT NULL, alert TEXT NOT NULL, what TEXT NOT NULL, why TEXT NOT NULL);
""",
    trouble="acts cannot be kept",
    way_out="look for what it has left in force, then move it away",
)


class ListedAct(TypedDict):
    """An act, as `acts list --json` writes it: the fields of Act."""

    place: str
    host: str
    state: str
    dry: bool
    since: str
    expires: str
    why: str
    rule: str
    alert: str


class AuditLine(TypedDict):
    """What was done, as `acts list --audit --json` writes it."""

    at: str
    place: str
    host: str
    alert: str
    what: str  # acted, would act, withdrawn, would withdraw, not acted
    why: str


@dataclass(frozen=True)
class Act:
    place: str  # the destination, without its options
    host: str
    state: str  # begun, in force, ending, over or refused
    dry: bool  # nothing is done in fact
    since: float
    expires: float
    why: str  # it is ending, over or refused
    address: str  # of the destination, to withdraw it by
    record: Record  # of the alert

    @property
    def network(self) -> Network:
        return ipaddress.ip_network(self.host, strict=False)

    @property
    def alert(self) -> str:
        return str(self.record.get("alert", ""))

    def listed(self) -> dict[str, Any]:
        """Return the fields of a ListedAct."""
        told = {name: value for name, value in vars(self).items() if name not in ("address", "record")}
        times = {"since": _iso(self.since), "expires": _iso(self.expires)}
        return told | times | {"rule": str(self.record.get("rule", "")), "alert": self.alert}


def _iso(seconds: float) -> str:
    return iso_time(int(seconds) * SECOND)


@dataclass(frozen=True)
class Change:
    """From one state of an act to the next, with what the log says of it; None: not in the ledger."""

    before: Act | None
    after: Act | None
    what: str = ""
    why: str = ""

    @property
    def act(self) -> Act:
        found = self.after or self.before
        assert found is not None
        return found


def ledger_beside(alerts: Path) -> Path:
    """Return the ledger of a run that keeps its alerts in a file, or the file itself if it is a ledger."""
    return alerts if ".acts" in alerts.suffixes else alerts.with_suffix(f".acts{alerts.suffix}")


class Ledger:
    """The file of acts. The process that holds it acts; any other may read, and ask for a withdrawal."""

    _shared: ClassVar[dict[Path, Ledger]] = {}  # that this process holds
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, path: Path, *, must_exist: bool = False) -> None:
        if must_exist and not (path.is_file() and path.stat().st_size):
            raise InputError("no acts are kept here", file=str(path))
        self.path = path
        self._database = Database(path, FORMAT)
        self.holder: Any = None  # the file that is locked
        self.owners: dict[str, list[Acting]] = {}  # by place; the last one acts
        self._users = 0

    @classmethod
    def held(cls, path: Path) -> Ledger:
        """Return the ledger of this process. Raise UsageError if another process holds it and does not give it up."""
        path = path.absolute()
        with cls._lock:
            found = cls._shared.get(path)
            if found is None:
                found = cls(path)
                if not found.hold(HOLDING):
                    found._database.close()
                    raise UsageError(f"{path}: another run acts by this ledger; give each run its own file of alerts")
                cls._shared[path] = found
            found._users += 1
            return found

    def hold(self, patience: float = 0.0) -> bool:
        """Keep other processes from acting; False if one acts. What such a process has started may hold it, too."""
        until = time.monotonic() + patience
        with output_errors(self.path):
            while (holder := hold_file(self.path.with_name(f".{self.path.name}.lock"))) is None:
                if time.monotonic() >= until:
                    return False
                time.sleep(0.05)
        self.holder = holder
        return True

    def close(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users <= 0:
                self._shared.pop(self.path, None)
                self._database.close()
                if self.holder is not None:
                    self.holder.close()

    def acts(self, place: str | None = None) -> list[Act]:
        with self._database.reading() as database:
            found = database.execute("SELECT * FROM acts WHERE ? IN (place, '') ORDER BY since, host", (place or "",))
            return [
                Act(place, host, state, bool(dry), float(since), float(expires), why, address, dict(json.loads(record)))
                for place, host, state, dry, since, expires, why, address, record in found.fetchall()
            ]

    def audit(self) -> list[AuditLine]:
        with self._database.reading() as database:
            rows = database.execute("SELECT at, place, host, alert, what, why FROM audit ORDER BY number").fetchall()
            names = tuple(AuditLine.__annotations__)
            return [dict(zip(names, (_iso(at), *rest), strict=True)) for at, *rest in rows]  # type: ignore[misc]

    def change(self, changes: Sequence[Change]) -> list[Change]:
        """Write changes, all of them or none; return those of acts that nobody else has changed meanwhile."""
        done = []
        with self._database.transaction() as database:
            for each in changes:
                if (before := each.before) is not None:
                    asked = "DELETE FROM acts WHERE (place, host, state) = (?, ?, ?)"
                    if not database.execute(asked, (before.place, before.host, before.state)).rowcount:
                        continue
                if (after := each.after) is not None:
                    values = *list(vars(after).values())[:-1], json.dumps(after.record)
                    database.execute("INSERT OR REPLACE INTO acts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
                done.append(each)
                if each.what:
                    act = each.act
                    line = (time.time(), act.place, act.host, act.alert, each.what, each.why)
                    asked = "INSERT INTO audit (at, place, host, alert, what, why) VALUES (?, ?, ?, ?, ?, ?)"
                    number = database.execute(asked, line).lastrowid or 0
                    database.execute("DELETE FROM audit WHERE number <= ?", (number - MOST_AUDIT,))
        return done


class Actor(Sender):
    """The means of acts. A subclass implements `put` and `withdraw`, which raise TemporaryError or PermanentError."""

    manners: ClassVar[tuple[str, ...]] = ("act", "expires", "most", "renew", "at-end")
    repeats: ClassVar[bool] = True  # what is in force may be put in force again at any time
    holder: Any = None  # the lock of the ledger, which short-lived children of this process may keep

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self.acts = address.choice("act", ("true", "false"), "false") == "true"
        self.lasts = address.seconds("expires", "1h")
        self.renews = address.choice("renew", ("true", "false"), "false") == "true"
        self.keeps = address.choice("at-end", ("withdraw", "keep"), "withdraw") == "keep"
        most = address.options.get("most", "100")
        if not (most.isascii() and most.isdecimal() and 0 < int(most) < 10**6):
            raise address.error(f"most={printable(most)}: write a number of acts, like 100")
        self.most = int(most)

    @property
    def place(self) -> str:
        """Return which firewall, router or program it is: the address without its options."""
        return f"{self.address.scheme}:{self.address.path}"

    @abstractmethod
    def put(self, acts: Sequence[Act]) -> None:
        """Put acts in force, also those that are in force already."""

    @abstractmethod
    def withdraw(self, act: Act) -> None:
        """Withdraw an act, also one that is not in force."""

    def deliver(self, batch: Batch) -> None:
        raise PermanentError("it acts by the alerts that are open, not by records")


@dataclass
class _Attempt:
    """What failed with a host, or in all of them (""), and when it is tried again."""

    pause: float = 1.0
    due: float = 0.0
    told: bool = False

    def later(self) -> float:
        self.due = time.monotonic() + self.pause
        self.pause = min(2 * self.pause, REPEAT)
        return self.due


class Acting(Destination):
    """Puts in force what the open alerts want, in a thread of its own, and withdraws everything else."""

    def __init__(self, actor: Actor, run: RunKind, options: DeliveryOptions, *, retired: bool = False) -> None:
        """`retired`: no run wants this destination any more, so it withdraws what the ledger has of it."""
        if options.ledger is None:
            raise UsageError(f"{actor.address.shown}: acts follow alerts; give it with --alert-to")
        super().__init__(actor.address.shown, run)
        self.kind, self.place = actor.address.scheme, actor.place
        self._actor, self._options, self._say = actor, options, options.say
        self._ledger = Ledger.held(options.ledger)
        self._ledger.owners.setdefault(self.place, []).append(self)
        actor.holder = self._ledger.holder
        self._never = never_act()
        self._retired = retired
        self._wanted: Mapping[str, Record] | None = {} if retired else None  # by hosts of open alerts; None: not told
        self._grown: set[str] = set()  # hosts that may be acted against again
        self._changed = threading.Condition()
        self._is_woken = self._is_ending = self._is_stopped = False
        self._attempts: dict[str, _Attempt] = {}
        self._repeat_due = 0.0
        self._trouble = ""
        self._left = 0  # acts that are to be withdrawn before it ends
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    # From the thread of the run.

    def keep_open(self, events: Callable[[], Sequence[Row]]) -> None:
        if self._retired:
            return
        found: dict[str, Record] = {}
        for event in events():
            host = str(event.get("host"))
            if not found.get(host, {}).get("act"):  # of several alerts of a host, one that allows it counts
                found[host] = {"site": self._options.site, **event}
        self._wake(wanted=found)

    def _write(self, report: Report) -> None:
        self._wake(grown={str(row["host"]) for row in report.rows if row.get("event") == GROWN})

    def reopen(self) -> None:
        """Try again at once, and put everything in force again: an operator may have mended something."""
        self._attempts.clear()
        self._repeat_due = 0.0
        self._wake()

    def _wake(self, wanted: Mapping[str, Record] | None = None, grown: Collection[str] = ()) -> None:
        with self._changed:
            self._wanted = self._wanted if wanted is None else wanted
            self._grown |= set(grown)
            self._is_woken = True
            self._changed.notify_all()

    def close(self) -> None:
        if text := self._finish():
            raise OutputError(text)

    def abandon(self) -> None:
        if text := self._finish():
            self._say(text)

    def _finish(self) -> Notice | None:
        """Withdraw everything, unless it is to be kept, for as long as a run waits for its destinations."""
        self._attempts.clear()
        if self._wanted is not None and not self._actor.keeps:
            self._wanted = {}
        self._is_ending = True
        self._wake()
        self._thread.join(self._options.time_left(self._options.wait if self.run.waits else LAST_MOMENT))
        self._is_stopped = True
        if self._thread.is_alive():
            self._actor.abort()
        self._wake()
        self._thread.join(1.0)
        left = self._left if self._is_in_charge else 0
        self._ledger.owners[self.place].remove(self)
        self._ledger.close()
        self._actor.close()
        if not left:
            return None
        way = f"the next run does it, or superhosts acts withdraw {self._ledger.path} --all"
        return Notice(f"{self.name}: {counted(left, 'act')} NOT WITHDRAWN; {way}", "not-withdrawn", WARNING)

    def status(self) -> dict[str, int]:
        return super().status() | {"delivered": self.counters.rows}

    @property
    def _is_in_charge(self) -> bool:
        """False if another destination has the same place, and as long as nobody has said what is wanted."""
        return self in self._ledger.owners[self.place][-1:] and self._wanted is not None

    # From the thread of this destination.

    def _run(self) -> None:
        while not self._is_stopped:
            is_ending = self._is_ending  # before the round, which then knows what is wanted at the end
            try:
                if self._is_in_charge:
                    self._round(time.time())
                trouble = ""
            except (OutputError, InputError) as error:
                trouble = str(error)
            except Exception as error:  # A thread that dies would leave everything in force.
                trouble = internal_error(error)
            if trouble and trouble != self._trouble:
                self._say(Notice(f"{self.name}: NOT ACTED: {trouble}; retrying", "not-acted", WARNING))
            self._trouble = trouble
            if is_ending and not (self._is_in_charge and (self._left or trouble)):
                return
            with self._changed:
                self._changed.wait_for(
                    lambda: self._is_woken or self._is_stopped, POLL / 10 if self._is_ending else POLL
                )
                self._is_woken = False

    def _round(self, now: float) -> None:
        with self._changed:
            wanted, grown = self._wanted or {}, frozenset(self._grown)
        rows = {act.host: act for act in self._ledger.acts(self.place)}
        if changes := list(self._plan(rows, wanted, grown, now)):
            self._tell(self._ledger.change(changes))
        with self._changed:
            self._grown -= grown
        acts = self._ledger.acts(self.place)
        if self._repeat_due <= time.monotonic():
            self._repeat([act for act in acts if act.state == IN_FORCE and not act.dry])
        for act in acts:
            if self._is_stopped:
                break
            if act.state in (BEGUN, ENDING) and self._attempts.get(act.host, _Attempt()).due <= time.monotonic():
                self._do(act, wanted)
        states = [act.state for act in self._ledger.acts(self.place)]
        self._left = sum(state == ENDING if self._actor.keeps else state in HELD for state in states)
        self.counters.waiting = sum(state in (BEGUN, ENDING) for state in states)

    def _plan(
        self, rows: Mapping[str, Act], wanted: Mapping[str, Record], grown: Collection[str], now: float
    ) -> Iterator[Change]:
        """Yield what is to change: what ends first, so that there is room for what begins."""
        taken = sum(act.state in HELD for act in rows.values())
        candidates = [host for host, record in wanted.items() if host not in rows and record["act"]]
        margin = min(REPEAT, self._actor.lasts / 2)
        for host, act in rows.items():
            record = wanted.get(host)
            ends = ""
            if act.state in (OVER, REFUSED):
                if record is None:
                    yield Change(act, None)
                elif record["act"] and (act.state == REFUSED or (host in grown and act.why != BY_PERSON)):
                    candidates.append(host)
            elif act.state != ENDING:
                if record is None:
                    ends = RETIRED if self._retired else ENDED if self._is_ending else CLOSED
                elif not record["act"] or self._forbids(host):
                    ends = FORBIDDEN
                elif self._actor.renews and act.expires <= now + margin and not self._is_old(record, now):
                    state = BEGUN if self._actor.repeats else act.state
                    yield Change(act, replace(act, state=state, expires=now + self._actor.lasts))
                elif act.expires <= now:
                    ends = EXPIRED
                elif self._actor.acts and act.dry:
                    yield Change(act, replace(act, state=BEGUN, dry=False))
                elif not self._actor.acts and not act.dry:
                    ends = NOT_WANTED
            if ends:
                yield Change(act, replace(act, state=ENDING, why=ends))
        for host in sorted(candidates, key=lambda host: -(wanted[host].get("peers") or 0)):
            before, record = rows.get(host), wanted[host]
            why = self._why_not(host, record, taken, now)
            times = (now, now if why else now + self._actor.lasts)
            about = (not self._actor.acts, *times, why, self._actor.address.text, record)
            act = Act(self.place, host, REFUSED if why else BEGUN, *about)
            taken += not why
            if why and before is not None and (before.state, before.why) == (REFUSED, why):
                continue
            yield Change(before, act, "not acted" if why else "", why)

    def _why_not(self, host: str, record: Record, taken: int, now: float) -> str:
        if self._forbids(host):
            return "never act"
        if self._is_old(record, now):
            return f"its last window ended at {record.get('until')}, and an act would be over"
        if taken >= self._actor.most:
            return f"{counted(self._actor.most, 'act')} in force, the most that are allowed"
        return ""

    def _forbids(self, host: str) -> bool:
        """Return True for a host that is no address, and for one that alerts should have said nobody acts against."""
        try:
            network: Network = ipaddress.ip_network(host, strict=False)
        except ValueError:
            return True
        spared = (entry.network for entry in self._never.entries)
        return any(contains(each, network) or contains(network, each) for each in spared)

    def _is_old(self, record: Record, now: float) -> bool:
        with suppress(ValueError, TypeError):
            return datetime.fromisoformat(str(record["until"])).timestamp() + self._actor.lasts <= now
        return True

    def _do(self, act: Act, wanted: Mapping[str, Record]) -> None:
        is_end = act.state == ENDING
        try:
            if act.dry:
                pass
            elif is_end:
                self._actor.withdraw(act)
            else:
                self._actor.put([act])
        except Exception as error:  # What fails with one host must not end the others.
            self._failed(act, error)
            return
        self._attempts.pop(act.host, None)
        if not is_end:
            self.counters.rows += 1
            done = Change(act, replace(act, state=IN_FORCE), "would act" if act.dry else "acted")
        else:
            stays = act.host in wanted and act.why not in AGAIN  # Only a new alert, or growth, leads to another act.
            after = replace(act, state=OVER) if stays else None
            done = Change(act, after, "would withdraw" if act.dry else "withdrawn", act.why)
        self._tell(self._ledger.change([done]))

    def _failed(self, act: Act, error: Exception) -> None:
        self.counters.failures += 1
        known = isinstance(error, TemporaryError | PermanentError | OSError)
        why = printable(reason_of(error) if known else internal_error(error))
        if isinstance(error, PermanentError) and act.state == BEGUN:  # A part of it may have happened.
            self._tell(self._ledger.change([Change(act, replace(act, state=ENDING, why=why), "not acted", why)]))
            return
        attempt = self._attempts.setdefault(act.host, _Attempt())
        attempt.later()
        if not attempt.told:
            attempt.told = True
            what, event = ("NOT WITHDRAWN", "not-withdrawn") if act.state == ENDING else ("NOT ACTED", "not-acted")
            self._say(Notice(f"{self.name}: {what}: {act.host}: {why}; retrying", event, WARNING, host=act.host))

    def _repeat(self, acts: Sequence[Act]) -> None:
        """Put everything in force again, which a reboot, a reload of the firewall or another router may have lost."""
        self._repeat_due = time.monotonic() + REPEAT if self._actor.repeats else float("inf")
        try:
            if acts and self._actor.acts:
                self._actor.put(acts)
            self._attempts.pop("", None)
        except (TemporaryError, PermanentError, OSError) as error:
            self.counters.failures += 1
            self._repeat_due = self._attempts.setdefault("", _Attempt()).later()
            trouble = f"{counted(len(acts), 'act')} NOT IN FORCE: {printable(reason_of(error))}"
            raise OutputError(trouble) from None

    def _tell(self, changes: Sequence[Change]) -> None:
        for each in changes:
            act = each.act
            until = clock_time(int(act.expires) * SECOND, time.time_ns())
            texts = {
                "acted": f"ACTED against {act.host} until {until}",
                "would act": f"WOULD ACT against {act.host} until {until}, with act=true",
                "not acted": f"NOT ACTED against {act.host}: {each.why}",
                "withdrawn": f"WITHDRAWN: {act.host}: {each.why}",
                "would withdraw": f"WOULD WITHDRAW {act.host}: {each.why}",
            }
            if each.what:
                whose = f" (rule {act.record.get('rule', '')}, alert {act.alert})"
                about = {"place": act.place, "host": act.host, "alert": act.alert}
                level = (WARNING,) if each.what == "not acted" else ()
                text = f"{self.name}: {texts[each.what]}{whose}"
                self._say(Notice(text, each.what.replace(" ", "-"), *level, **about))
