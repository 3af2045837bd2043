"""Details of rows: protocol, ports, flags, and what records of logs say about conversations."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import naive_details as naive
from naive_details import ANSWERED, CONVERSATION, RECORD, packed
from sources.tables.test_logs import real
from superhosts.errors import InputError
from superhosts.sources.base import Wants
from superhosts.sources.open import open_inputs
from superhosts.sources.tables.formats import begin_text
from superhosts.sources.tables.knownlogs import LOGS, ZEEK
from superhosts.sources.tables.options import TableOptions
from superhosts.sources.tables.textreader import TextReader
from table_reading import Drips, options, read, read_file

A, B = "10.1.2.3", "192.0.2.77"
PROTOCOLS = ["tcp", "TCP", "Udp", "6", "17", "icmp", "1", "ipv6-icmp", "58", "sctp", "GRE"]
PROTOCOLS += ["255", "256", "what", "-", ""]
PORTS = ["0", "1", "53", "443", "65535", "65536", "8080.0", "x", "-", "", "1e3", "99999999999", "12345678901234567890"]
FLAGS = ["0", "2", "18", "0x12", "27", "256", "65536", "...AP.SF", ".AP...", "FSPA", "S", "SYN", "-", "", "0x", "...."]
COUNTS = ["0", "1", "1234567", "-", "", "x"]
WANTED = TableOptions(details=True)

Record = dict[str, str | None]


def zeek(drawn: Random) -> Record:
    states = ["SF", "S0", "S1", "S2", "S3", "REJ", "RSTO", "RSTR", "RSTOS0", "RSTRH", "SH", "SHR", "OTH", "-", "new"]
    return {
        "ts": "1700000000.5",
        "id.orig_h": A,
        "id.orig_p": drawn.choice([*PORTS, "8", "3"]),
        "id.resp_h": B,
        "id.resp_p": drawn.choice(PORTS),
        "proto": drawn.choice(PROTOCOLS),
        "resp_bytes": drawn.choice(COUNTS),
        "conn_state": drawn.choice(states),
        "resp_pkts": drawn.choice(COUNTS),
    }


def argus(drawn: Random) -> Record:
    states = ["SPA_SRPA", "S_", "S_RA", "_SA", "PA_PA", "FA_R", "CON", "INT", "URP", "ECO", "REQ", "", "A_b_c", "TXD"]
    return {
        "StartTime": "2023/11/14 22:13:20.25",
        "Dur": "1.5",
        "Proto": drawn.choice(PROTOCOLS),
        "SrcAddr": A,
        "Sport": drawn.choice([*PORTS, "0x0303", "0x0008"]),
        "Dir": drawn.choice(["->", "<->", "<?>", "?>", "<-", "who"]),
        "DstAddr": B,
        "Dport": drawn.choice(PORTS),
        "State": drawn.choice(states),
        "DstPkts": drawn.choice(COUNTS),
    }


def eve(drawn: Random) -> Record:
    hexes = ["00", "02", "12", "14", "1b", "zz", "", "04"]
    return {
        "timestamp": "2023-11-14T23:13:27.500000+0100",
        "event_type": drawn.choice(["flow", "netflow", "alert"]),
        "src_ip": A,
        "src_port": drawn.choice(PORTS),
        "dest_ip": B,
        "dest_port": drawn.choice(PORTS),
        "proto": drawn.choice(PROTOCOLS),
        "icmp_type": drawn.choice(["0", "3", "8", "256", "x"]),
        "flow.pkts_toclient": drawn.choice(COUNTS),
        "tcp.tcp_flags": drawn.choice(hexes),
        "tcp.tcp_flags_tc": drawn.choice(hexes),
    }


def plain(names: str, ends: str) -> Callable[[Random], Record]:
    """Return a maker of records with these names of protocol, ports and flags, and fixed other fields."""

    def make(drawn: Random) -> Record:
        values = zip(names.split(), (PROTOCOLS, PORTS, [*PORTS, "3.1", "8.0"], FLAGS), strict=False)
        fixed = dict(each.split("=") for each in ends.split())
        return {**fixed, **{name: drawn.choice(choices) for name, choices in values}}

    return make


def one_way(names: str, *, icmp_in_dport: bool = False) -> Callable[[Record], int]:
    four = (*names.split(), "", "")[:4]
    return lambda record: naive.of_record(record, four, icmp_in_dport=icmp_in_dport)  # type: ignore[arg-type]


Case = tuple[Callable[[Random], Record], Callable[[Record], int], str]


def log(names: str, ends: str, how: str, **options: bool) -> Case:
    return plain(names, ends), one_way(names, **options), how


S, DATE = "1700000000", "2023-11-14T22:13:20Z"
NTOPNG = "PROTOCOL L4_SRC_PORT L4_DST_PORT TCP_FLAGS"
# The log, a maker of records, the oracle, and how it is written
CASES: dict[str, Case] = {
    "zeek": (zeek, naive.of_zeek, "\t"),
    "zeek in JSON": (zeek, naive.of_zeek, "json"),
    "eve": (eve, naive.of_eve, "json"),
    "argus": (argus, naive.of_argus, ","),
    "goflow2": log(
        "proto src_port dst_port tcp_flags", f"src_addr={A} dst_addr={B} time_received_ns={S}{9 * '0'}", "json"
    ),
    "pmacct": log("ip_proto port_src port_dst tcp_flags", f"ip_src={A} ip_dst={B} timestamp_start={DATE}", "json"),
    "nfdump": log("pr sp dp flg", f"ts=1700000000 te=1700000001 sa={A} da={B}", ",", icmp_in_dport=True),
    "silk": log("protocol sPort dPort flags", f"sIP={A} dIP={B} sTime=1700000000", "|", icmp_in_dport=True),
    "aws": log("protocol srcport dstport tcp-flags", f"version=5 srcaddr={A} dstaddr={B} start={S} end={S}", " "),
    "gcp": log(
        "connection.protocol connection.src_port connection.dest_port",
        f"connection.src_ip={A} connection.dest_ip={B} start_time={DATE}",
        "json",
    ),
    "ntopng": (
        plain(NTOPNG, f"IPV4_SRC_ADDR={A} IPV4_DST_ADDR={B} FIRST_SWITCHED=1700000000"),
        lambda record: one_way(NTOPNG)(record) - RECORD + CONVERSATION,
        "json",
    ),
    "csv": log("protocol src_port dst_port tcp_flags", f"time=1700000000 src_ip={A} dst_ip={B}", ";"),
    "jsonl": log("proto sport dport flags", f"time=1700000000 src={A} dst={B}", "json"),
}


def nested(record: Record) -> dict[str, object]:
    """Return a record with objects for names with dots, except Zeek's."""
    found: dict[str, object] = {}
    for name, value in record.items():
        place, keys = found, [name] if name.startswith("id.") else name.split(".")
        for key in keys[:-1]:
            place = place.setdefault(key, {})  # type: ignore[assignment]
        place[keys[-1]] = value
    return found


def written(records: list[Record], how: str, name: str) -> str:
    if how == "json":
        return "".join(json.dumps(nested(record)) + "\n" for record in records)
    # A run of blanks is one delimiter, so that no field may be empty there.
    rows = [[("-" if how == " " and not value else value) or "" for value in record.values()] for record in records]
    first = how.join(records[0])
    return "".join(f"{line}\n" for line in ["#fields\t" + first if name == "zeek" else first, *map(how.join, rows)])


@pytest.mark.parametrize("case", CASES)
def test_details_of_logs_are_those_of_the_oracle(case: str, tmp_path: Path) -> None:
    make, expected, how = CASES[case]
    drawn = Random(case)
    records = [make(drawn) for _ in range(600)]
    path = tmp_path / "log"
    path.write_text(written(records, how, case))
    found = read_file(path, WANTED)
    assert found.format == case.split()[0]
    assert (len(found.rows), found.bad) == (600, 0)
    for record, detail in zip(records, found.details, strict=True):
        assert detail == expected(record), record
    without = read_file(path)
    assert without.rows == found.rows
    assert without.details == []


def test_a_list_of_rita_has_hosts_that_opened(tmp_path: Path) -> None:
    assert {log.name for log in LOGS} - {each.split()[0] for each in CASES} == {"rita"}  # It has no details.
    path = tmp_path / "rita.csv"
    path.write_text(f"Source IP,Destination IP,Connections\n{A},{B},5\n")
    assert read_file(path, WANTED).details == [CONVERSATION]


def test_the_flows_of_azure(tmp_path: Path) -> None:
    flows = [
        f"1700000000,{A},{B},1,443,T,O,A,B,,,,",
        f"1700000000,{A},{B},1,443,T,O,A,E,5,500,4,400",
        f"1700000000,{A},{B},5,53,U,O,D",  # version 1
        f"1700000000,{A},{B},5,53,17,O,C,NX,3,300,0,0",
    ]
    document = {"records": [{"properties": {"flows": [{"flows": [{"flowTuples": flows}]}]}}]}
    path = tmp_path / "azure.json"
    path.write_text(json.dumps(document))
    found = read_file(path, WANTED)
    assert found.bad == 0
    tcp, udp = (6, 1, 443, None, None), (17, 5, 53, None, None)
    assert found.details == [packed(*tcp, RECORD), packed(*tcp, ANSWERED), packed(*udp, RECORD), packed(*udp, RECORD)]


def test_lines_that_lack_their_last_fields_count_as_without_details(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    rows = ["src,dst,time,proto,dport", *(f"{A},{B}{rest}" for rest in (",1,tcp,80", ",2,udp", ",3", "", ",4,tcp,81"))]
    path.write_text("\n".join([*rows, ""]))
    found, without = read_file(path, WANTED), read_file(path)
    assert found.rows == without.rows
    assert found.bad == without.bad == 1
    known = [packed(6, None, 80, None), packed(17, None, None, None), 0, packed(6, None, 81, None)]
    assert found.details == [RECORD + each for each in known]
    path.write_text(f"src,dst,time\n{A},{B},1\n")
    assert read_file(path, WANTED).details == [RECORD]


def test_columns_that_are_mapped(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(f"src,dst,time,a,b,c,d,e\n{A},{B},1,udp,7,8,9,0\n{A},{B},1,tcp,7,8,0x12,5\n")
    asked = options("proto=a,sport=5,dport=C,flags=d,replies=e", details=True)
    expected = [packed(17, 7, 8, None, None, CONVERSATION), packed(6, 7, 8, 18, None, ANSWERED)]
    assert read_file(path, asked).details == expected
    states = tmp_path / "states.csv"
    states.write_text(f"src,dst,time,how\n{A},{B},1,S0\n{A},{B},1,SF\n{A},{B},1,OTH\n")
    assert read_file(states, options("state=how", details=True)).details == [CONVERSATION, ANSWERED, 0]
    with pytest.raises(InputError, match="no such column"):
        read_file(path, options("proto=nowhere"))
    with pytest.raises(InputError, match="the same column, b"):
        read_file(path, options("sport=b,dport=b", details=True))


def test_ends_that_are_mapped_need_not_be_who_opened(tmp_path: Path) -> None:
    path = tmp_path / "conn.log"
    path.write_text(written([zeek(Random(1))], "\t", "zeek"))
    asked = options("src=id.resp_h,dst=id.orig_h", details=True)
    assert read_file(path, asked).details[0] & (RECORD | CONVERSATION) == RECORD


def test_text_that_comes_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("superhosts.sources.tables.textreader.PIECE_BYTES", 3000)
    drawn = Random(4)
    records = [zeek(drawn) for _ in range(500)]
    path = tmp_path / "conn.log"
    path.write_text(written(records, "\t", "zeek"))
    for threads in (1, 3):
        found = read_file(path, options(threads=threads, details=True))
        assert found.details == [naive.of_zeek(each) for each in records]


def test_a_state_may_also_be_the_kind_of_a_record() -> None:
    log = ZEEK._replace(kind="conn_state", kinds=("SF", "S0"))
    ends = {"ts": "1700000000.5", "id.orig_h": "10.0.0.1", "id.resp_h": "192.0.2.1"}
    rows = [{**ends, "conn_state": state} for state in ("SF", "S0", "REJ")]
    tabs = "\n".join(["\t".join(rows[0]), *("\t".join(row.values()) for row in rows)]) + "\n"
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    for text in (tabs, lines):
        asked = options(details=True)
        reading = read(TextReader(Drips(text.encode(), 99), partial(begin_text, "log", log, asked)))
        assert reading.skipped == 1, text
        plain = read(TextReader(Drips(text.encode(), 99), partial(begin_text, "log", ZEEK, asked)))
        assert reading.details == plain.details[:2], text
        assert len(set(reading.details)) == 2, text


def test_all_formats_give_the_same_details(tmp_path: Path) -> None:
    drawn = Random(8)
    records = [zeek(drawn) for _ in range(400)]
    for record in records:  # Some columns are numbers in tables.
        record["id.resp_p"] = drawn.choice(["0", "443", "65535", "70000"])
        record["resp_pkts"] = "0"
    expected = [naive.of_zeek(each) for each in records]
    columns: dict[str, list[object]] = {name: [each[name] for each in records] for name in records[0]}
    columns["ts"] = [float(str(each)) for each in columns["ts"]]
    ports = [int(str(each)) for each in columns["id.resp_p"]]
    texts = {"csv": ",", "tsv": "\t", "zeek": "\t", "json": "json"}
    for name, how in texts.items():
        path = tmp_path / name
        path.write_text(written(records, how, name))
        assert read_file(path, WANTED).details == expected, name
    for kind in (pa.int32(), pa.int64(), pa.uint32(), pa.float64(), pa.string()):
        values = [str(each) for each in ports] if kind == pa.string() else ports
        table = pa.table({**columns, "id.resp_p": pa.array(values, kind)})
        words = table["conn_state"].dictionary_encode()
        table = table.set_column(table.schema.get_field_index("conn_state"), "conn_state", words)
        pq.write_table(table, tmp_path / "rows.parquet", row_group_size=150)
        with pa.OSFile(str(tmp_path / "rows.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        for path in (tmp_path / "rows.parquet", tmp_path / "rows.arrow"):
            assert read_file(path, WANTED).details == expected, (kind, path)


def test_a_zeek_log_without_states(tmp_path: Path) -> None:
    drawn = Random(9)
    records = [zeek(drawn) for _ in range(200)]
    for record in records:
        del record["conn_state"]
    expected = [naive.of_zeek(each) for each in records]
    assert {each & ANSWERED for each in expected} == {ANSWERED, CONVERSATION}
    path = tmp_path / "conn.log"
    path.write_text(written(records, "\t", "zeek"))
    assert read_file(path, WANTED).details == expected
    pq.write_table(pa.table({name: [each[name] for each in records] for name in records[0]}), tmp_path / "conn.parquet")
    assert read_file(tmp_path / "conn.parquet", WANTED).details == expected


def test_missing_values_of_columns_are_unknown(tmp_path: Path) -> None:
    """Whatever lies behind a null."""
    texts = pa.array(["tcp", "udp"])
    _, offsets, data = texts.buffers()
    proto = pa.StringArray.from_buffers(2, offsets, data, pa.py_buffer(b"\x01"))
    table = pa.table({"src": [A] * 2, "dst": [B] * 2, "time": [1, 2], "proto": proto})
    with pa.OSFile(str(tmp_path / "rows.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    assert read_file(tmp_path / "rows.arrow", WANTED).details == [RECORD + packed(6, None, None, None), RECORD]
    columns = {"src": [A] * 3, "dst": [B] * 3, "time": [1] * 3, "proto": ["tcp", None, "udp"], "dport": [80, 81, None]}
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({**columns, "flags": [[1], [2], [3]]}), path)
    known = [packed(6, None, 80, None), packed(None, None, 81, None), packed(17, None, None, None)]
    assert read_file(path, WANTED).details == [RECORD + each for each in known]


def test_dropped_rows_drop_their_details_and_both_families_have_theirs(tmp_path: Path) -> None:
    ends = [("10.0.0.1", "10.0.0.2"), ("x", "10.0.0.2"), ("2001:db8::1", "2001:db8::2"), ("10.0.0.1", "2001:db8::2")]
    rows = [(*ends[i % 4], -1 if i % 7 == 3 else i, i) for i in range(100)]
    columns = dict(zip(("src", "dst", "time", "dport"), map(list, zip(*rows, strict=True)), strict=True))
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table(columns), path)
    (source,) = open_inputs([str(path)])
    source.want(Wants(details=True))
    found: dict[int, list[int]] = {4: [], 6: []}
    for block in source.blocks():
        for batch in block:
            assert batch.details is not None
            found[batch.family] += batch.details.tolist()
    for family, which in ((4, 0), (6, 2)):
        kept = [row[3] for i, row in enumerate(rows) if i % 4 == which and row[2] >= 0]
        assert found[family] == [packed(None, None, dport, None, None, RECORD) for dport in kept]


def test_a_folder_gives_details_of_its_logs_and_reading_again_does(tmp_path: Path) -> None:
    records = [zeek(Random(5)) for _ in range(20)]
    (tmp_path / "conn.log").write_text(written(records, "\t", "zeek"))
    expected = [naive.of_zeek(each) for each in records]
    (folder,) = open_inputs([tmp_path], follow=True)
    folder.want(Wants(details=True))
    (batch,) = next(folder.blocks())
    assert batch.details is not None
    assert batch.details.tolist() == expected
    (source,) = open_inputs([str(tmp_path / "conn.log")])
    source.want(Wants(details=True))
    for each in (source, source.again()):
        assert [batch.details.tolist() for block in each.blocks() for batch in block] == [expected]  # type: ignore[union-attr]


def zeek_records(text: str) -> Iterator[Record]:
    names: list[str] = []
    for line in text.splitlines():
        if line.startswith("#fields"):
            names = line.split("\t")[1:]
        elif not line.startswith("#"):
            yield dict(zip(names, line.split("\t"), strict=True))


def test_real_logs() -> None:
    path = real("zeek-conn.00_00_00-01_00_00.log.gz")
    expected = [naive.of_zeek(each) for each in zeek_records(gzip.decompress(path.read_bytes()).decode())]
    assert read_file(path, WANTED).details == expected
    path = real("argus.binetflow")
    names, *rows = [[each.strip() for each in line.split(",")] for line in path.read_text().splitlines()]
    expected = [naive.of_argus(dict(zip(names, row, strict=False))) for row in rows]
    assert read_file(path, WANTED).details == expected
    expected = []
    for line in real("suricata-eve.json").read_text().splitlines():
        event = json.loads(line)
        if event["event_type"] in ("flow", "netflow", "alert"):
            deep = {f"{top}.{key}": value for top in ("flow", "tcp") for key, value in event.get(top, {}).items()}
            texts = {key: str(value) for key, value in {**event, **deep}.items()}
            expected.append(naive.of_eve(texts))
    assert read_file(real("suricata-eve.json"), WANTED).details == expected
