"""What is known of exporters: times, sequence numbers, sampling rates, templates, all of it bounded."""

from __future__ import annotations

import contextlib
import socket
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

import exports as e
from needs import needed
from superhosts.sources.exports.collector import BURST, BURST_EACH, Budget, Held, HeldSet
from superhosts.sources.exports.registry import Limits, Registry, StreamKey, TemplateFile
from traffic import NOON, talk, write

ENDS = e.address("10.0.0.1") + e.address("10.0.0.2")
NOW = (e.NOON + 10) * e.SECOND
V5 = e.version5([e.record5("10.0.0.1", "10.0.0.2")])


def one(fields: list[e.Field], content: bytes, **manner: Any) -> e.Reading:
    """Read one IPFIX record that has these fields behind its addresses."""
    whole: list[e.Field] = [(8, 4), (12, 4), *fields]
    flow = e.data(256, [ENDS + content])
    return e.Reading(**manner).feed(e.ipfix(e.template(256, whole, is_ipfix=True), flow), received=NOW)


def ntp(seconds: float) -> bytes:
    return struct.pack("!II", int(seconds) + 2_208_988_800, int(seconds % 1 * 2**32))


SECONDS = e.NOON * e.SECOND
TIMES: list[tuple[list[e.Field], bytes, int, int]] = [  # with how many wrong times
    ([(150, 4)], struct.pack("!I", e.NOON - 5), SECONDS - 5 * e.SECOND, 0),
    ([(152, 8)], struct.pack("!Q", e.NOON * 1000 - 7), SECONDS - 7_000_000, 0),
    ([(154, 8)], ntp(e.NOON - 1.5), SECONDS - 1_500_000_000, 0),
    ([(156, 8)], ntp(e.NOON - 0.25), SECONDS - 250_000_000, 0),
    ([(158, 4)], struct.pack("!I", 2500), SECONDS - 2_500_000, 0),
    ([(323, 8)], struct.pack("!Q", e.NOON * 1000), SECONDS, 0),
    ([(22, 4), (160, 8)], struct.pack("!IQ", 4000, (e.NOON - 100) * 1000), SECONDS - 96 * e.SECOND, 0),
    ([(22, 4)], struct.pack("!I", 4000), SECONDS, 0),  # nothing says when the exporter was started
    *(([(150, 4)], struct.pack("!I", far), SECONDS, 1) for far in (0, 1, e.NOON - 90_000, e.NOON + 90_000, 2**32 - 1)),
]


def test_every_kind_of_time_in_ipfix() -> None:
    for fields, content, time, wrong in TIMES:
        reading = one(fields, content)
        assert (reading.times, reading.status["wrong_times"]) == ([time], wrong)
        if 150 <= fields[0][0] < 322:
            assert one([(fields[0][0] + 1, fields[0][1])], content, time="end").times == [time]


def test_uptime_with_the_time_of_boot_in_options() -> None:
    sets = e.options_template(300, [(149, 4)], [(160, 8)], is_ipfix=True)
    reading = e.Reading().feed(e.ipfix(sets, e.data(300, [struct.pack("!IQ", 0, (e.NOON - 100) * 1000)])))
    fields: list[e.Field] = [(8, 4), (12, 4), (22, 4)]
    flow = e.data(256, [ENDS + struct.pack("!I", 4000)])
    reading.feed(e.ipfix(e.template(256, fields, is_ipfix=True), flow, sequence=1))
    assert reading.times == [(e.NOON - 96) * e.SECOND]


def test_uptime_that_began_again() -> None:
    flow = e.record5("10.0.0.1", "10.0.0.2", first=2**32 - 1000)
    reading = e.Reading().feed(e.version5([flow], uptime=500))
    assert reading.times == [e.NOON * e.SECOND - 1_500_000_000]


@pytest.mark.parametrize(("uptime", "wrong"), [(2**32 - 1, 0), (2**32, 1), (2**63, 1)])
def test_an_uptime_of_more_than_32_bits_is_counted_and_not_obeyed(uptime: int, wrong: int) -> None:
    fields: list[e.Field] = [(8, 4), (12, 4), (22, 8)]
    flow = e.data(256, [ENDS + struct.pack("!Q", uptime)])
    reading = e.Reading().feed(e.version9(e.template(256, fields), flow, uptime=2**32 - 1))
    assert reading.times == [e.NOON * e.SECOND]
    assert reading.status["wrong_times"] == wrong


def test_an_export_time_that_is_far_off_is_the_time_of_arrival() -> None:
    for time in ("start", "export", "received"):
        reading = e.Reading(time=time).feed(e.version5([e.record5("10.0.0.1", "10.0.0.2")], seconds=0), received=NOW)
        assert abs(reading.times[0] - NOW) <= 4 * e.SECOND
        assert reading.status["wrong_times"] == 1


# Sequence numbers


def flows5(*sequences: int) -> e.Reading:
    records = [e.record5("10.0.0.1", "10.0.0.2")] * 10
    return e.Reading().feed(*(e.version5(records, sequence=each) for each in sequences))


@pytest.mark.parametrize(
    ("sequences", "lost", "restarts"),
    [
        ((0, 10, 20), 0, 0),
        ((0, 10, 40), 20, 0),
        ((2**32 - 10, 0), 0, 0),
        ((2**32 - 20, 0), 10, 0),
        ((5_000_000, 5_000_010, 0, 10), 0, 1),
        ((100, 110, 3_000_000_000, 3_000_000_010), 0, 1),
        ((50_000, 50_020, 50_010, 50_030), 0, 0),  # one was overtaken
    ],
)
def test_gaps_of_version_5(sequences: tuple[int, ...], lost: int, restarts: int) -> None:
    status = flows5(*sequences).status
    assert (status["lost_records"], status["restarts"], status["lost_datagrams"]) == (lost, restarts, 0)


def test_gaps_of_version_9_are_datagrams_and_those_of_ipfix_records_of_data_and_options() -> None:
    known, flow = e.template(256, e.WIDE, is_ipfix=True), e.data(256, [e.wide("2001:db8::1", "2001:db8::2")] * 3)
    options = e.options_template(300, [(149, 4)], [(34, 4)], is_ipfix=True)
    sets = [known, options, flow, e.data(300, [struct.pack("!II", 0, 100)] * 2)]
    for datagrams, lost in (
        ([e.version9(e.template(256, e.USUAL), sequence=each) for each in (7, 8, 11)], (2, 0)),
        ([e.ipfix(*sets, sequence=each) for each in (0, 5, 14)], (0, 4)),
        # Records without a template are not a gap.
        ([e.ipfix(flow), e.ipfix(known, flow, sequence=3), e.ipfix(flow, sequence=6)], (0, 0)),
    ):
        reading = e.Reading().feed(*datagrams)
        assert (reading.status["lost_datagrams"], reading.status["lost_records"]) == lost
    assert len(reading.ipv6) == 9


@pytest.mark.parametrize("first", [0, 100_000])
def test_gaps_are_seen_after_records_have_waited_for_their_template(first: int) -> None:
    flow = e.data(256, [e.wide("2001:db8::1", "2001:db8::2")] * 40)
    known = e.template(256, e.WIDE, is_ipfix=True)
    early = [e.ipfix(flow, sequence=first + 40 * each) for each in range(10)]
    later = [e.ipfix(flow, sequence=first + 440 + 80 * each) for each in range(1, 6)]  # some are missing before each
    reading = e.Reading().feed(*early, e.ipfix(known, flow, sequence=first + 400), *later)
    status = reading.status
    assert (status["lost_records"], status["restarts"], len(reading.ipv6)) == (240, 0, 16 * 40)


def numbered(counts: list[int], *, includes_own: bool, first: int = 0, options: bool = False) -> list[bytes]:
    """Return messages of so many records, numbered with what was sent before them, or with their own records, too."""
    sets = [e.template(256, e.WIDE, is_ipfix=True), e.options_template(300, [(149, 4)], [(34, 4)], is_ipfix=True)]
    messages, sequence = [], first
    for place, count in enumerate(counts):
        flows = [e.data(256, [e.wide("2001:db8::1", "2001:db8::2")] * count)]
        if place % 5 == 0:  # templates come again, and with them, perhaps, a record of options
            flows = [*sets, *([e.data(300, [struct.pack("!II", 0, 1)])] if options else []), *flows]
        messages.append(e.ipfix(*flows, sequence=(sequence + count * includes_own) % 2**32))
        sequence += count
    return messages


COUNTS = [25, 28, 32, 32, 32, 23, 32, 32, 33, 14, 33, 32, 7, 32, 32, 32, 3, 9, 32, 32]


@pytest.mark.parametrize("first", [0, 100_000, 2**32 - 200])
@pytest.mark.parametrize("options", [True, False])
def test_numbers_that_include_the_messages_own_records(first: int, options: bool) -> None:
    """As softflowd numbers them; it does not count records of options."""

    def status(messages: list[bytes]) -> tuple[Any, Any]:
        found = e.Reading().feed(*messages).status
        return found["lost_records"], found["restarts"]

    sent = numbered(COUNTS, includes_own=True, first=first, options=options)
    for some in range(4, len(sent) + 1):
        assert status(sent[:some]) == (0, 0)
    lost = {6, 11, 12}
    assert status([each for place, each in enumerate(sent) if place not in lost]) == (sum(COUNTS[i] for i in lost), 0)
    if first == 100_000:
        sent[8], sent[9] = sent[9], sent[8]  # overtaken
        assert status(sent) == (0, 0)
    again = numbered(COUNTS, includes_own=True, first=5_000_000) + numbered(COUNTS, includes_own=True)
    assert status(again) == (0, 1)


def test_numbers_of_the_standard_stay_what_they_are() -> None:
    for counts in (COUNTS, [20] * 20):
        for missing in ({3}, {6, 11, 12}, {18}, set(range(1, 19, 2))):
            sent = numbered(counts, includes_own=False)
            found = e.Reading().feed(*(each for place, each in enumerate(sent) if place not in missing)).status
            assert (found["lost_records"], found["restarts"]) == (sum(counts[place] for place in missing), 0)


def test_gaps_belong_to_an_exporter() -> None:
    reading = e.Reading().feed(V5, V5, exporter=["192.0.2.1", "192.0.2.2"])
    assert (reading.status["lost_records"], reading.status["restarts"]) == (0, 0)
    assert [each["address"] for each in reading.status["exporters"]] == ["192.0.2.1", "192.0.2.2"]  # type: ignore[attr-defined]


@pytest.mark.slow
def test_softflowd_loses_nothing(tmp_path: Path) -> None:
    """The real program sends all of its messages to a socket that has room for them."""
    program = needed("softflowd", "SUPERHOSTS_NEED_SOFTFLOWD")
    frames = [frame for each in range(40) for frame in talk(f"10.0.0.{each + 1}", 10 + each, NOON + each * e.SECOND)]
    capture, datagrams = write(tmp_path / "a.pcap", frames), list[bytes]()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.settimeout(0.1)
        place = f"127.0.0.1:{listening.getsockname()[1]}"
        command = [program, "-r", capture, "-n", place, "-v", "10", "-m", "100"]
        subprocess.run(command, check=True, capture_output=True, timeout=600)
        with contextlib.suppress(TimeoutError):  # all that was sent waits in the socket
            while True:
                datagrams.append(listening.recv(65_535))
    status = e.Reading().feed(*datagrams).status
    assert len({len(each) for each in datagrams}) > 3  # messages of several sizes
    assert (status["lost_records"], status["restarts"], status["damaged"]) == (0, 0, 0)


# Sampling


@pytest.mark.parametrize(
    ("fields", "content", "rate"),
    [
        ([(34, 4)], struct.pack("!I", 512), 512),
        ([(48, 1), (49, 1), (50, 4)], struct.pack("!BBI", 3, 2, 1000), 1000),
        ([(304, 2), (305, 4), (306, 4)], struct.pack("!HII", 1, 1, 999), 1000),
        ([(305, 4)], struct.pack("!I", 256), 256),
        ([(309, 4), (310, 4)], struct.pack("!II", 2, 4000), 2000),
        ([(311, 8)], struct.pack("!d", 0.01), 100),
        ([(35, 1)], b"\2", None),
    ],
)
def test_the_rate_of_options(fields: list[e.Field], content: bytes, rate: int | None) -> None:
    for is_ipfix in (False, True):
        make = e.ipfix if is_ipfix else e.version9
        known = e.options_template(300, [(1, 4)], fields, is_ipfix=is_ipfix)
        reading = e.Reading().feed(make(known, e.data(300, [bytes(4) + content]), domain=77))
        assert reading.status["sampling"] == rate


def test_the_rate_holds_for_all_domains_of_an_exporter() -> None:
    known = e.options_template(300, [(1, 4)], [(34, 4)])
    reading = e.Reading().feed(e.version9(known, e.data(300, [struct.pack("!II", 0, 100)]), domain=9))
    flow = e.data(256, [e.usual("10.0.0.1", "10.0.0.2")])
    reading.feed(e.version9(e.template(256, e.USUAL), flow, domain=1))
    reading.feed(V5, exporter="192.0.2.9")
    rates = {(each["address"], each["domain"]): each["sampling"] for each in reading.status["exporters"]}  # type: ignore[attr-defined]
    assert rates == {("192.0.2.1", 9): 100, ("192.0.2.1", 1): 100, ("192.0.2.9", 0): None}


def test_the_rate_of_version_5_and_of_records() -> None:
    reading = e.Reading().feed(e.version5([e.record5("10.0.0.1", "10.0.0.2")], sampling=0x4000 | 30))
    assert reading.status["sampling"] == 30
    assert one([(34, 4)], struct.pack("!I", 50)).status["sampling"] == 50


# Templates


def test_all_templates_are_withdrawn() -> None:
    known = e.template(256, e.WIDE, is_ipfix=True), e.template(257, e.WIDE, is_ipfix=True)
    options = e.options_template(300, [(149, 4)], [(34, 4)], is_ipfix=True)
    reading = e.Reading().feed(e.ipfix(*known, options))
    reading.feed(e.ipfix(e.a_set(2, struct.pack("!HH", 2, 0))))
    assert [number for _, number in reading.collector.registry.templates] == [300]
    reading.feed(e.ipfix(e.a_set(3, struct.pack("!HH", 3, 0))))
    assert not reading.collector.registry.templates


@pytest.mark.parametrize(
    "content",
    [
        struct.pack("!HH", 255, 1) + bytes(4),
        struct.pack("!HH", 256, 600) + struct.pack("!HH", 8, 4) * 600,
        struct.pack("!HH", 256, 5) + struct.pack("!HH", 8, 4),
        struct.pack("!HHHH", 256, 1, 8, 0),
    ],
)
def test_templates_that_make_no_sense_are_counted(content: bytes) -> None:
    reading = e.Reading().feed(e.version9(e.a_set(0, content)))
    assert reading.status["bad_templates"] == 1
    assert not reading.collector.registry.templates


def test_streams_and_templates_are_bounded_and_busy_exporters_served() -> None:
    limits = Limits(streams=64, templates=128, templates_each=16)
    reading = e.Reading(limits=limits)
    flow = e.data(256, [e.usual("10.0.0.1", "10.0.0.2")])
    good = [e.version9(e.template(256, e.USUAL), flow, sequence=each) for each in range(100)]
    reading.feed(*good, exporter="192.0.2.1")
    varying: list[e.Field] = [(82, e.VARIABLE), (8, 4), (12, 4)]
    for number in range(300):
        kinds = varying if number % 2 else e.USUAL
        sets = [e.template(256 + (number + each) % 1000, kinds) for each in range(5)]
        forged = f"198.51.{number // 256}.{number % 256}"
        reading.feed(e.version9(*sets, e.data(999, [bytes(40)]), domain=number), exporter=forged)
        reading.feed(e.version9(flow, sequence=100 + number), exporter="192.0.2.1")
    registry = reading.collector.registry
    assert len(reading.ipv4) == 400
    assert len(registry.templates) <= 128
    assert int(registry.tables.used[0]) <= 64
    assert registry.given_up > 200
    assert reading.status["lost_datagrams"] == 0


def test_one_exporter_with_endless_templates_does_not_displace_others() -> None:
    reading = e.Reading(limits=Limits(streams=8, templates=64, templates_each=16))
    reading.feed(e.version9(e.template(256, e.USUAL)), exporter="192.0.2.1")
    for number in range(500):
        fields: list[e.Field] = [(8, 4), (12, 4), (number, 4)]
        reading.feed(e.version9(e.template(300 + number, fields), sequence=number), exporter="192.0.2.66")
    flow = e.data(256, [e.usual("10.0.0.1", "10.0.0.2")])
    reading.feed(e.version9(flow, sequence=1), exporter="192.0.2.1")
    assert reading.ends == [("10.0.0.1", "10.0.0.2")]
    assert len(reading.collector.registry.templates) <= 17


def test_what_waits_is_bounded() -> None:
    held = Held(most=10_000, each=4_000)
    for number in range(1000):
        held.add((StreamKey(number % 7, 9, 0), 256), HeldSet(bytes(300), 0))
    assert len(held) <= 20
    assert held.given_up == 1000 - len(held)
    assert sum(len(held.take((StreamKey(each, 9, 0), 256))) for each in range(7)) == 1000 - held.given_up
    assert len(held) == 0


# The file


def test_templates_and_rates_survive_a_restart(tmp_path: Path) -> None:
    said: list[str] = []
    reading = e.Reading()
    options = e.options_template(300, [(1, 4)], [(34, 4)])
    reading.feed(e.version9(e.template(256, e.USUAL), options, e.data(300, [struct.pack("!II", 0, 100)]), domain=5))
    TemplateFile(tmp_path / "folder" / "state.json", said.append).save(reading.collector.registry)
    after = e.Reading()
    TemplateFile(tmp_path / "folder" / "state.json", said.append).load(after.collector.registry)
    after.feed(e.version9(e.data(256, [e.usual("10.0.0.1", "10.0.0.2")]), domain=5))
    assert after.ends == [("10.0.0.1", "10.0.0.2")]
    assert after.status["sampling"] == 100
    assert said == []


def test_the_file_is_written_when_something_has_changed_and_not_too_often(tmp_path: Path) -> None:
    path, clock = tmp_path / "state.json", [0.0]
    file = TemplateFile(path, pytest.fail, clock=lambda: clock[0])
    reading = e.Reading()
    file.save(reading.collector.registry)
    assert not path.exists()
    reading.feed(e.version9(e.template(256, e.USUAL)))
    file.save(reading.collector.registry)
    first = path.read_text()
    reading.feed(e.version9(e.template(257, e.USUAL)))
    file.save(reading.collector.registry)
    assert path.read_text() == first
    clock[0] = 1.0
    file.save(reading.collector.registry)
    assert path.read_text() != first


def test_a_damaged_file_is_set_aside_and_a_folder_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    for content in ("", "{", "[]", '{"format": "superhosts templates 1", "exporters": [{}]}', "null"):
        said = list[str]()
        path.write_text(content)
        TemplateFile(path, said.append).load(Registry())
        assert (path.exists(), len(said)) == (False, 1)
    path.write_text("")
    reading, said = e.Reading().feed(e.version9(e.template(256, e.USUAL))), []
    TemplateFile(path / "state.json", said.append).save(reading.collector.registry)
    assert "cannot be kept" in said[0]


# Budgets


def test_new_exporters_share_a_budget_and_established_ones_have_their_own() -> None:
    clock = [0.0]
    budget = Budget(lambda: clock[0])
    assert budget.allows("a", BURST, is_established=False)
    assert not budget.allows("b", 1000, is_established=False)
    assert budget.allows("c", BURST_EACH, is_established=True)
    assert not budget.allows("c", 1000, is_established=True)
    assert budget.allows("d", 1000, is_established=True)
    clock[0] = 1.0
    assert budget.allows("b", 1000, is_established=False)
    assert budget.allows("c", 1000, is_established=True)


def test_templates_beyond_the_budget_are_counted_and_known_ones_cost_nothing() -> None:
    reading = e.Reading(is_live=True, time="received")
    reading.collector.budget = Budget(lambda: 0.0)
    fields: list[e.Field] = [(8, 4), (12, 4), *((number, 4) for number in range(300, 700))]
    for number in range(400):
        reading.feed(e.version9(e.template(256 + number, fields[: 402 - number % 7]), domain=number))
    assert reading.status["refused_templates"] > 0
    flow = e.data(256, [e.usual("10.0.0.1", "10.0.0.2")])
    datagrams = (e.version9(e.template(256, e.USUAL), flow, sequence=n) for n in range(20_000))
    reading = e.Reading(is_live=True).feed(*datagrams)
    assert (len(reading.ipv4), reading.status["refused_templates"]) == (20_000, 0)
