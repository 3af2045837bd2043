"""Every log that is known: recognised by its content, read with the right fields and units."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import naive_text
from places import DATA, REPRO
from superhosts.errors import InputError
from superhosts.sources.tables.formats import FORMATS
from superhosts.sources.tables.options import TableOptions
from table_reading import Reading, options, read_file

START, END = 1_700_000_000_250_000_000, 1_700_000_007_500_000_000  # 2023-11-14 22:13:20.25 and 7.25 s later
DATES = "2023-11-14 22:13:20.250", "2023-11-14 22:13:27.500"
A, B = "10.1.2.3", "192.0.2.77"
ZEEK = (
    "#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n#unset_field\t-\n#path\tconn\n"
    "#fields\tts\tuid\tid.orig_h\tid.orig_p\tid.resp_h\tid.resp_p\tproto\tservice\tduration\n"
    "#types\ttime\tstring\taddr\tport\taddr\tport\tenum\tstring\tinterval\n"
    f"1700000000.250000\tC1\t{A}\t1\t{B}\t443\ttcp\t-\t7.250000\n#close\t2023-11-14-23-00-00\n"
)
HEAD, DHCP = "#separator \\x09\n#fields\tts\t", {"client_addr": A, "server_addr": B}
EVE = {
    "timestamp": "2023-11-14T23:13:27.500000+0100",
    "event_type": "flow",
    "src_ip": A,
    "dest_ip": B,
    "flow": {"start": "2023-11-14T23:13:20.250000+0100", "end": "2023-11-14T23:13:27.500000+0100"},
}
NOTICE = {"note": "x", "msg": "y", "suppress_for": 3600.0}
PMACCT, NFDUMP = {"ip_src": A, "ip_dst": B}, {"src4_addr": A, "dst4_addr": B}
GCP = {"src_ip": A, "dest_ip": B, "src_port": 5, "protocol": 6}
GCP_TIMES = {"start_time": "2023-11-14T22:13:20.25Z", "end_time": "2023-11-14T22:13:27.5Z"}
GOFLOW2_TIMES = {"time_flow_start_ns": START, "time_flow_end_ns": END}
NSG = {"flows": [{"rule": "r", "flows": [{"mac": "00", "flowTuples": [f"1700000000,{A},{B},1,2,T,O,A,B,,,,"]}]}]}
GROUP = {"rule": "r", "flowTuples": [f"1700000000250,{A},{B},1,2,6,O,B,NX,0,0,0,0"]}
VNET = {"flows": [{"aclID": "x", "flowGroups": [GROUP]}]}
S = "1700000000"
LOGS: dict[str, Any] = {  # their first words are the names of formats
    "zeek": ZEEK,
    "zeek with another separator": ZEEK.replace("\\x09", "\\x7c").replace("\t", "|"),
    "zeek without its header": ZEEK.splitlines()[-2] + "\n",
    "zeek with a first column": (
        f"#fields\t_node_name\tts\tid.orig_h\tid.resp_h\tduration\nw\t1700000000.25\t{A}\t{B}\t7.25\n"
    ),
    "zeek in JSON": {"_path": "conn", "ts": 1700000000.25, "id.orig_h": A, "id.resp_h": B, "duration": 7.25},
    "zeek in JSON with dates": {"ts": "2023-11-14T22:13:20.250000Z", "id.orig_h": A, "id.resp_h": B},
    "zeek's dhcp.log": f"{HEAD}uids\tclient_addr\tserver_addr\tduration\n1700000000.25\tC1,C2\t{A}\t{B}\t7.25\n",
    "zeek's dhcp.log in JSON": {"ts": 1700000000.25, "uids": ["C1"], **DHCP, "duration": 7.25},
    "zeek's notice.log": (
        f"{HEAD}id.orig_h\tid.resp_h\tnote\tsrc\tdst\n1700000000.25\t-\t-\tScan::Port_Scan\t{A}\t{B}\n"
    ),
    "zeek's notice.log in JSON": {"ts": 1700000000.25, **NOTICE, "src": A, "dst": B},
    "eve": EVE,
    "eve netflow": {**EVE, "event_type": "netflow", "flow": {}, "netflow": EVE["flow"]},
    "goflow2": {"time_received_ns": END + 5, "src_addr": A, "dst_addr": B, **GOFLOW2_TIMES},
    "goflow2 of old": {"TimeReceived": 1700000009, "SrcAddr": A, "DstAddr": B, "TimeFlowStartMs": START // 10**6},
    "pmacct in JSON": {"event_type": "purge", **PMACCT, "timestamp_start": DATES[0], "timestamp_end": DATES[1]},
    "pmacct in CSV": f"SRC_IP,DST_IP,TIMESTAMP_START,TIMESTAMP_END,PACKETS\n{A},{B},{DATES[0]},{DATES[1]},5\n",
    "pmacct without a start": {**PMACCT, "timestamp_start": "0000-00-00 00:00:00", "stamp_inserted": DATES[0]},
    "nfdump 1.6": (
        f"ts,te,td,sa,da,sp,dp,pr\n{DATES[0]},{DATES[1]},7.250,{A},{B},1,2,TCP\nSummary\nflows,bytes,packets\n1,2,3\n"
    ),
    "nfdump 1.7": (
        f"firstSeen,duration,proto,srcAddr,srcPort,dstAddr,dstPort\n{DATES[0]},00:00:07.250,TCP,{A},1,{B},2\n"
    ),
    "nfdump's JSON": {"type": "FLOW", "first": DATES[0].replace(" ", "T"), "last": DATES[1], **NFDUMP},
    "silk": "            sIP|            dIP|sPort|                  sTime|  duration|                  eTime|\n"
    f"{A:>15}|{B:>15}|    1|2023/11/14T22:13:20.250|     7.250|2023/11/14T22:13:27.500|\n",
    "argus": (
        f"StartTime,Dur,Proto,SrcAddr,Sport,Dir,DstAddr\n2023/11/14 22:13:20.250000,7.250000,tcp,{A},1,   ->,{B}\n"
    ),
    "aws": f"2 123456789010 eni-1 {A} {B} 1 2 6 20 4249 1700000000 1700000007 ACCEPT OK\n",
    "aws with its header": f"version srcaddr dstaddr start end log-status\n5 {A} {B} {S} 1700000007 OK\n",
    "aws in another order": f"interface-id end start dstaddr srcaddr\neni-1 1700000007 {S} {B} {A}\n",
    "aws with the time of delivery": (
        f"2023-11-14T22:20:00.000Z 2 1 eni-1 {A} {B} 1 2 6 20 4249 {S} 1700000007 ACCEPT OK\n"
    ),
    "gcp": {"insertId": "x", "jsonPayload": {"connection": GCP, **GCP_TIMES}, "timestamp": "2024-01-01T00:00:00Z"},
    "azure nsg": json.dumps({"records": [{"time": "x", "properties": {"Version": 2, **NSG}}]}, indent=1),
    "azure vnet": {"records": [{"time": "x", "flowRecords": VNET}]},
    "ntopng": {"IPV4_SRC_ADDR": A, "IPV4_DST_ADDR": B, "FIRST_SWITCHED": 1700000000, "LAST_SWITCHED": 1700000007},
    "ntopng of ClickHouse": (
        f"IPV4_SRC_ADDR,IPV4_DST_ADDR,IPV6_SRC_ADDR,IPV6_DST_ADDR,FIRST_SWITCHED\n167838211,3221226061,::,::,{S}\n"
    ),
    "rita": f"Viewing database: x\nSeverity,Source IP,Destination IP,FQDN,Beacon Score\nHigh,{A},{B},,0.9\n",
    "csv": f"time;src_ip;dst_ip\n{S}.25;{A};{B}\n",
    "jsonl": {"@timestamp": S, "source": {"ip": A}, "destination": {"ip": B}},
}
TEXTS = {case: log if isinstance(log, str) else f"{json.dumps(log)}\n" for case, log in LOGS.items()}
WHOLE_SECONDS = 1_700_000_000 * 10**9


def format_of(case: str) -> str:
    return case.split()[0].removesuffix("'s")


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


LACK_END = {
    *("zeek's notice.log", "zeek's notice.log in JSON", "zeek in JSON with dates"),
    *("goflow2 of old", "pmacct without a start", "ntopng of ClickHouse"),
}


@pytest.mark.parametrize("case", TEXTS)
def test_a_log_is_recognised_and_its_fields_are_found(case: str, tmp_path: Path) -> None:
    name, text = format_of(case), TEXTS[case]
    path = tmp_path / "log"
    for packed in (True, False):
        path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
        found = read_file(path)
        assert (found.format, found.bad) == (name, 0)
        assert [row[:3] for row in found.rows] == [(4, naive_text.address(A)[1], naive_text.address(B)[1])]
        assert found.rows[0][3] in ((0,) if name == "rita" else (START, WHOLE_SECONDS))
    if name not in ("rita", "azure", "csv", "jsonl"):
        expected = {START, WHOLE_SECONDS} if case in LACK_END else {END, 1_700_000_007 * 10**9}
        assert read_file(path, TableOptions(time="end")).rows[0][3] in expected


def test_every_format_of_text_has_a_case() -> None:
    names = {format.name for format in FORMATS} - {"parquet", "arrow", "tsv"}  # the last is never recognised: csv is
    assert set(map(format_of, TEXTS)) >= {name for name in names if "binary" not in name}


def test_formats_by_their_names(tmp_path: Path) -> None:
    path = written(tmp_path / "log", f"a\tb\tc\n{A}\t{B}\t5\n")
    found = read_file(path, options("src=a,dst=b,time=c"), "tsv")
    assert (found.format, len(found.rows)) == ("tsv", 1)
    wrong = r'expected text \(a Zeek log\), found binary data; without format="zeek" the content decides'
    for head in (b"PAR1\x15", b"ARROW1", b"\xd4\xc3\xb2\xa1", b"\x89CUBE\r\n\x1a"):
        path.write_bytes(head + bytes(range(256)))
        with pytest.raises(InputError, match=wrong):
            read_file(path, name="zeek")


def test_logs_that_are_concatenated_may_have_other_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    swapped = ZEEK.replace("id.orig_h", "X").replace("id.resp_h", "id.orig_h").replace("X", "id.resp_h")
    text = ZEEK * 40 + swapped * 40 + ZEEK
    expected = [naive_text.address(A)[1]] * 40 + [naive_text.address(B)[1]] * 40 + [naive_text.address(A)[1]]
    path = written(tmp_path / "conn.log", text)
    monkeypatch.setattr("superhosts.sources.tables.textreader.PIECE_BYTES", 3000)
    for threads in (1, 3):
        found = read_file(path, options(threads=threads))
        assert [row[1] for row in found.rows] == expected
        assert (found.bad, found.skipped) == (0, 0)


def test_heads_of_zeek_that_other_programs_wrote(tmp_path: Path) -> None:
    """The head may spell the separator otherwise or lack it, be indented, and the last line may be cut."""
    whole = ZEEK.rsplit("#close", 1)[0]
    head, types, row = whole.partition("#fields")[0], *whole.splitlines(keepends=True)[-2:]
    heads = {
        "two characters": whole.replace("\\x09", "\\t"),
        "a tab": whole.replace("\\x09", "\t"),
        "no separator": whole.partition("\n")[2],
        "fields alone": whole.removeprefix(head).replace(types, ""),
        "blanks": whole.replace("\t", "  "),
        "an indented head": "".join(f"\t{line}" for line in whole.removesuffix(row).splitlines(keepends=True)) + row,
        "all indented": "".join(f"\t{line}" for line in whole.splitlines(keepends=True)),
        "Windows": whole.replace("\n", "\r\n"),
    }
    expected = read_file(written(tmp_path / "conn.log", ZEEK)).rows
    for name, text in heads.items():
        last = text.splitlines()[-1]
        for end, bad in (("", 0), (last.rpartition(B)[0], 1)):
            found = read_file(written(tmp_path / "conn.log", text + end))
            assert (found.format, found.rows, found.bad) == ("zeek", expected, bad), name
            assert bad == sum("the input ends inside this line" in row.text for row in found.first_bad)


def test_a_log_of_zeek_without_two_hosts_names_the_one_to_scan(tmp_path: Path) -> None:
    files = {"ts": 1700000000.25, "fuid": "F1", "tx_hosts": [A], "rx_hosts": [B], "source": "HTTP"}
    for text in (
        json.dumps(files) + "\n",
        f"{HEAD}fuid\ttx_hosts\trx_hosts\n1\tF1\t{A}\t{B}\n",
        f"{HEAD}peer\n1\tzeek\n",
    ):
        with pytest.raises(InputError, match=r"two hosts; Zeek's conn.log in the same folder does: scan that"):
            read_file(written(tmp_path / "files.log", text))
    path = written(tmp_path / "files.log", f"{HEAD}fuid\ttx_hosts\trx_hosts\n1\tF1\t{A}\t{B}\n")
    assert len(read_file(path, options("src=tx_hosts,dst=rx_hosts")).rows) == 1


@pytest.mark.parametrize(("name", "rows", "bad"), [("zeek_minimal.log", 1, 1), ("zeek_no_separator.log", 8, 2)])
def test_zeek_logs_that_raised_a_type_error(name: str, rows: int, bad: int) -> None:
    if not (REPRO / name).exists():
        pytest.skip("inputs that broke the program are not here")
    found = read_file(REPRO / name)
    assert (len(found.rows), found.bad) == (rows, bad)


def test_what_is_no_record(tmp_path: Path) -> None:
    """Summaries of nfdump, records of AWS without data, and other events of Suricata."""
    found = read_file(written(tmp_path / "nf.csv", TEXTS["nfdump 1.6"] * 3))
    assert (len(found.rows), found.bad, found.skipped) == (3, 0, 0)
    line = TEXTS["aws"]
    none = f"2 123456789010 eni-1 - - - - - - - {S} 1700000007 - NODATA\n"
    found = read_file(written(tmp_path / "aws.log", none + line + none.replace("NODATA", "SKIPDATA")))
    assert (found.format, len(found.rows), found.bad, found.skipped) == ("aws", 1, 0, 2)
    others = [{**EVE, "event_type": kind} for kind in ("dns", "stats", "http", "alert", "a_long_name_of_an_event")]
    del others[1]["src_ip"], others[1]["dest_ip"]
    text = "".join(json.dumps(each) + "\n" for each in (*others, EVE))
    found = read_file(written(tmp_path / "eve.json", text))
    assert (len(found.rows), found.bad, found.skipped) == (2, 0, 4)


def test_an_alert_ends_when_it_was_written(tmp_path: Path) -> None:
    alert = {**EVE, "event_type": "alert", "flow": {"start": EVE["flow"]["start"]}}  # type: ignore[index]
    path = written(tmp_path / "eve.json", json.dumps(alert) + "\n")
    assert read_file(path).rows[0][3] == START
    assert read_file(path, TableOptions(time="end")).rows[0][3] == END


def test_addresses_of_both_families(tmp_path: Path) -> None:
    names = "IPV6_SRC_ADDR", "IPV6_DST_ADDR", "IPV4_SRC_ADDR", "IPV4_DST_ADDR"
    ends = ("2001:db8::1", "2001:db8::2", "0.0.0.0", "0.0.0.0"), ("::", "::", A, B), ("::", "ff02::1")
    records = [dict(zip(names, each, strict=False)) for each in ends]
    text = "".join(json.dumps({**record, "FIRST_SWITCHED": 5}) + "\n" for record in records)
    found = read_file(written(tmp_path / "ntop.json", text))
    assert [row[0] for row in found.rows] == [6, 4, 6]
    assert found.rows[2][1:3] == (0, int("ff02" + "0" * 27 + "1", 16))


def test_a_map_comes_before_what_a_log_says(tmp_path: Path) -> None:
    path = written(tmp_path / "conn.log", ZEEK)
    found = read_file(path, options("src=id.resp_h,dst=id.orig_h,time=duration:s"))
    assert found.rows == [(4, naive_text.address(B)[1], naive_text.address(A)[1], 7_250_000_000)]


def real(name: str) -> Path:
    if not (DATA / name).exists():
        pytest.skip("real files are not here")
    return DATA / name


def answers(found: Reading) -> tuple[int, int, int]:
    pairs = {row[1:3] for row in found.rows if row[0] == 4 and row[1] != row[2]}
    return sum(row[0] == 4 for row in found.rows), len({end for pair in pairs for end in pair}), len(pairs)


REAL = "zeek-conn.00_00_00-01_00_00.log.gz", "zeek-conn.01_00_00-02_00_00.log.gz", "argus.binetflow"


@pytest.mark.parametrize("name", REAL)
def test_real_logs_have_their_answers(name: str) -> None:
    found = read_file(real(name))
    expected = json.loads((DATA / "expected.json").read_text())[name]
    assert answers(found) == (expected["records"], expected["hosts4"], expected["pairs4"])
    assert found.bad == 0


def test_a_real_eve_log() -> None:
    path = real("suricata-eve.json")
    expected = naive_text.Reading()
    for line in path.read_text().splitlines():
        event = json.loads(line)
        if event["event_type"] in ("flow", "netflow", "alert"):
            start = event.get("flow", {}).get("start") or event["timestamp"]
            naive_text.put(expected, event["src_ip"], event["dest_ip"], start)
    found = read_file(path)
    assert found.rows == expected.rows
    assert (found.bad, len(found.rows), found.skipped) == (0, 4257, 743)
