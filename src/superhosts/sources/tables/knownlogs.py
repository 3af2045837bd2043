"""The logs and tables that are known, as data: how each is recognised, which of its fields mean what, and what its
records say about conversations.

Which columns a table has decides which of the candidates of its description are used (`textrow.wanted_of`).

Two kinds of records say different things. Zeek, Argus, ntopng, RITA and flows of Suricata have a record for a whole
conversation, whose source opened it; fields tell if the other end answered, and a refusal is not an answer.
goflow2, pmacct, nfdump, SiLK, the clouds and Suricata's netflow events have records of packets in one direction. Where
such a record counts packets of the other direction, too, it is a conversation that was answered.
"""

from __future__ import annotations

from collections.abc import Mapping as Dict
from collections.abc import Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

# What a record claims about a conversation. `details.combine` draws the conclusion for each record.
NO_CLAIM: Final = 0  # it is like a single packet: its protocol and flags say what it does
RECORD: Final = 1  # packets in one direction
CONVERSATION: Final = 2  # both directions, and the source opened; whether there was an answer, other fields say
ANSWERED: Final = 3  # a conversation that was answered
UNANSWERED: Final = 4  # a conversation without an answer; a refusal is none

# Where a log without a field for it has the type of ICMP messages
ICMP_NOWHERE: Final = 0
ICMP_IS_SPORT: Final = 1  # the source port
ICMP_IN_SPORT: Final = 2  # the low byte of the source port, below the code
ICMP_IN_DPORT: Final = 3  # the high byte of the destination port, above the code, or before a point: 3.1


class Log(NamedTuple):
    """A kind of log or table. A field is "name", or "name:unit" for numbers of a known unit."""

    name: str  # for --format
    title: str
    marks: tuple[str, ...] = ()  # a header or an object that has all names of one of these lists is such a log
    src: tuple[str, ...] = ()
    dst: tuple[str, ...] = ()
    advice: str = ""  # what to do with a log of this program that has neither end
    start: tuple[str, ...] = ()
    end: tuple[str, ...] = ()
    duration: tuple[str, ...] = ()
    kind: str = ""  # the field that says what a record is
    kinds: tuple[str, ...] = ()  # and those that count
    has_several: bool = False  # a record may have several of the candidates, some of them zero or not set
    delimiter: str = ""  # of delimited text; "": found in the first line
    quote: str = '"'
    columns: tuple[str, ...] = ()  # of delimited text that has no header, by the number of columns
    footer: str = ""  # what begins the line behind the last row
    # Details, which are read where a run wants them
    proto: tuple[str, ...] = ()
    sport: tuple[str, ...] = ()
    dport: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()  # of TCP, from source to destination or of both
    has_hex_flags: bool = False  # flags are hexadecimal digits without 0x
    icmp_type: tuple[str, ...] = ()
    icmp_place: int = ICMP_NOWHERE  # where the type of ICMP messages is, if no field has it
    claim: int = RECORD  # what a record claims about a conversation, unless these fields say otherwise:
    direction: tuple[str, ...] = ()  # fields whose words are `directions`
    directions: Dict[str, int] = MappingProxyType({})
    state: tuple[str, ...] = ()  # fields whose words are `states`
    states: Dict[str, int] = MappingProxyType({})
    reply_flags: tuple[str, ...] = ()  # of TCP, from destination to source
    replies: tuple[str, ...] = ()  # packets or bytes from destination to source

    def __hash__(self) -> int:
        return hash(self.name)

    def is_marked(self, names: Sequence[str]) -> bool:
        """Return True if these columns or keys are those of such a log. Marks are in lower case."""
        known = {name.strip().lower() for name in names}
        return any(known.issuperset(mark.split(",")) for mark in self.marks)


# Zeek's states. OTH is traffic without a beginning, and all that is neither TCP nor UDP. Of SHR and RSTRH only the
# answer was seen: who opened is Zeek's guess, and the target of a spoofed scan sees the same.
ZEEK_STATES = {
    **dict.fromkeys(("SF", "S1", "S2", "S3", "RSTO", "RSTR"), ANSWERED),
    **dict.fromkeys(("S0", "REJ", "RSTOS0", "SH"), UNANSWERED),
    **dict.fromkeys(("OTH", "SHR", "RSTRH"), NO_CLAIM),
}
# Argus has no initiator where an arrow has a question mark. Its states of TCP are flags of both ends (SPA_SRPA) or
# words; records of ICMP errors say what went wrong.
ARGUS_DIRECTIONS = {"->": CONVERSATION, "<->": ANSWERED, **dict.fromkeys(("<?>", "?>", "<?", "<-", "who"), NO_CLAIM)}
ARGUS_STATES = {
    **dict.fromkeys(("CON", "EST", "ACC", "CLO", "FIN"), ANSWERED),
    **dict.fromkeys(("INT", "REQ"), UNANSWERED),
    **dict.fromkeys(("URP", "URH", "URN", "URF", "URS", "URO", "URHPRO", "URNPRO", "URCUT", "TXD", "RED"), NO_CLAIM),
}

# Most of Zeek's logs are about connections. Of the others, dhcp.log has a client and a server; notice.log has a source
# and a destination where no connection is meant. The files.log of Zeek 5.0 has sets of hosts that sent and received,
# which does not say who opened.
ZEEK = Log(
    "zeek",
    "a Zeek log",
    marks=("id.orig_h,id.resp_h", "client_addr,uids", "msg_types,uids", "note,suppress_for", "tx_hosts,rx_hosts"),
    src=("id.orig_h", "client_addr", "src"),
    dst=("id.resp_h", "server_addr", "dst"),
    advice="its records do not name two hosts; Zeek's conn.log in the same folder does: scan that",
    start=("ts",),
    duration=("duration:s",),
    quote="",
    columns=("ts uid id.orig_h id.orig_p id.resp_h id.resp_p proto service duration",),
    proto=("proto",),
    sport=("id.orig_p",),
    dport=("id.resp_p",),
    icmp_place=ICMP_IS_SPORT,
    claim=CONVERSATION,
    state=("conn_state",),
    states=ZEEK_STATES,
    replies=("resp_bytes", "resp_pkts"),
)
EVE = Log(
    "eve",
    "Suricata's EVE log",
    marks=("event_type,timestamp",),
    src=("src_ip",),
    dst=("dest_ip",),
    start=("flow.start", "netflow.start", "timestamp"),
    end=("flow.end", "netflow.end", "timestamp"),
    kind="event_type",
    kinds=("flow", "netflow", "alert"),
    proto=("proto",),
    sport=("src_port",),
    dport=("dest_port",),
    flags=("tcp.tcp_flags",),
    has_hex_flags=True,
    icmp_type=("icmp_type",),
    direction=("event_type",),
    directions={"flow": CONVERSATION, "netflow": RECORD, "alert": NO_CLAIM},
    reply_flags=("tcp.tcp_flags_tc",),
    replies=("flow.pkts_toclient",),
)
GOFLOW2 = Log(
    "goflow2",
    "goflow2's JSON",
    marks=("src_addr,dst_addr,sampler_address", "src_addr,dst_addr,time_received_ns", "srcaddr,dstaddr,timereceived"),
    src=("src_addr", "SrcAddr"),
    dst=("dst_addr", "DstAddr"),
    start=("time_flow_start_ns:ns", "TimeFlowStartMs:ms", "TimeFlowStart", "time_received_ns:ns", "TimeReceived"),
    end=("time_flow_end_ns:ns", "TimeFlowEndMs:ms", "TimeFlowEnd"),
    proto=("proto", "Proto"),
    sport=("src_port", "SrcPort"),
    dport=("dst_port", "DstPort"),
    flags=("tcp_flags", "TCPFlags"),
    icmp_type=("icmp_type", "IcmpType"),
)
PMACCT = Log(
    "pmacct",
    "pmacct's JSON or CSV",
    marks=tuple(
        f"{ends},{time}"
        for ends in ("ip_src,ip_dst", "src_ip,dst_ip")
        for time in ("timestamp_start", "stamp_inserted", "timestamp_arrival", "timestamp_min")
    ),
    src=("ip_src", "SRC_IP"),
    dst=("ip_dst", "DST_IP"),
    start=("timestamp_start", "timestamp_min", "timestamp_arrival", "stamp_inserted"),
    end=("timestamp_end", "timestamp_max"),
    has_several=True,
    proto=("ip_proto", "PROTOCOL"),
    sport=("port_src", "SRC_PORT"),
    dport=("port_dst", "DST_PORT"),
    flags=("tcp_flags", "TCP_FLAGS"),
)
NFDUMP = Log(
    "nfdump",
    "nfdump's CSV or JSON",
    marks=(
        "ts,te,sa,da",
        "firstseen,srcaddr,dstaddr",
        "received,srcaddr,dstaddr",
        "first,last,src4_addr,dst4_addr",
        "first,last,src6_addr,dst6_addr",
    ),
    src=("sa", "srcAddr", "src4_addr", "src6_addr"),
    dst=("da", "dstAddr", "dst4_addr", "dst6_addr"),
    start=("ts", "firstSeen", "first", "received"),
    end=("te", "lastSeen", "last"),
    duration=("td:s", "duration:s"),
    footer="Summary",
    proto=("pr", "proto"),
    sport=("sp", "srcPort", "src_port"),
    dport=("dp", "dstPort", "dst_port"),
    flags=("flg", "flags", "tcp_flags"),
    icmp_type=("icmp_type",),
    icmp_place=ICMP_IN_DPORT,
    replies=("opkt", "outPackets", "out_packets"),
)
SILK = Log(
    "silk",
    "the output of SiLK's rwcut",
    marks=("sip,dip",),
    src=("sIP",),
    dst=("dIP",),
    start=("sTime", "sTime+msec"),
    end=("eTime", "eTime+msec"),
    duration=("dur:s", "duration:s", "dur+msec:s"),
    quote="",
    proto=("protocol", "pro"),
    sport=("sPort",),
    dport=("dPort",),
    flags=("flags",),
    icmp_type=("iType",),
    icmp_place=ICMP_IN_DPORT,
)
ARGUS = Log(
    "argus",
    "Argus's CSV (binetflow)",
    marks=("starttime,srcaddr,dstaddr", "stime,saddr,daddr"),
    src=("SrcAddr", "saddr"),
    dst=("DstAddr", "daddr"),
    start=("StartTime", "stime"),
    end=("LastTime", "ltime"),
    duration=("Dur:s",),
    proto=("Proto",),
    sport=("Sport",),
    dport=("Dport",),
    icmp_place=ICMP_IN_SPORT,
    claim=CONVERSATION,
    direction=("Dir",),
    directions=ARGUS_DIRECTIONS,
    state=("State",),
    states=ARGUS_STATES,
    replies=("DstPkts", "dpkts", "DstBytes", "dbytes"),
)
_AWS = "version account-id interface-id srcaddr dstaddr srcport dstport protocol packets bytes start end"
AWS = Log(
    "aws",
    "an AWS VPC flow log",
    marks=(
        "srcaddr,dstaddr,start",
        "srcaddr,dstaddr,interface-id",
        "srcaddr,dstaddr,log-status",
        "pkt-srcaddr,pkt-dstaddr",
    ),
    src=("srcaddr", "pkt-srcaddr"),
    dst=("dstaddr", "pkt-dstaddr"),
    start=("start:s",),
    end=("end:s",),
    columns=(f"{_AWS} action log-status", f"delivered {_AWS} action log-status"),
    proto=("protocol",),
    sport=("srcport",),
    dport=("dstport",),
    flags=("tcp-flags",),
)
GCP = Log(
    "gcp",
    "a Google Cloud VPC flow log",
    marks=("jsonpayload.connection.src_ip,jsonpayload.connection.dest_ip", "connection.src_ip,connection.dest_ip"),
    src=("jsonPayload.connection.src_ip", "connection.src_ip"),
    dst=("jsonPayload.connection.dest_ip", "connection.dest_ip"),
    start=("jsonPayload.start_time", "start_time", "timestamp"),
    end=("jsonPayload.end_time", "end_time", "timestamp"),
    proto=("jsonPayload.connection.protocol", "connection.protocol"),
    sport=("jsonPayload.connection.src_port", "connection.src_port"),
    dport=("jsonPayload.connection.dest_port", "connection.dest_port"),
)
NTOPNG = Log(
    "ntopng",
    "flows of ntopng or nProbe",
    marks=("ipv4_src_addr,ipv4_dst_addr", "ipv6_src_addr,ipv6_dst_addr"),
    src=("IPV4_SRC_ADDR", "IPV6_SRC_ADDR"),
    dst=("IPV4_DST_ADDR", "IPV6_DST_ADDR"),
    start=("FIRST_SWITCHED", "FLOW_START_MILLISECONDS:ms", "@timestamp"),
    end=("LAST_SWITCHED", "FLOW_END_MILLISECONDS:ms"),
    has_several=True,
    proto=("PROTOCOL",),
    sport=("L4_SRC_PORT", "IP_SRC_PORT"),
    dport=("L4_DST_PORT", "IP_DST_PORT"),
    flags=("CLIENT_TCP_FLAGS", "SRC2DST_TCP_FLAGS", "TCP_FLAGS"),
    icmp_type=("ICMP_IPV4_TYPE",),
    claim=CONVERSATION,
    reply_flags=("SERVER_TCP_FLAGS", "DST2SRC_TCP_FLAGS"),
    replies=("OUT_PKTS", "DST2SRC_PACKETS", "OUT_BYTES", "DST2SRC_BYTES"),
)
RITA = Log(
    "rita",
    "a list of RITA",
    marks=(
        "source ip,destination ip,connections",
        "source ip,destination ip,severity",
        "source ip,destination ip,beacon score",
    ),
    src=("Source IP",),
    dst=("Destination IP",),
    claim=CONVERSATION,
)
LOGS = (ZEEK, EVE, GOFLOW2, PMACCT, NFDUMP, SILK, ARGUS, AWS, GCP, NTOPNG, RITA)
# Tables that are not a known log: a state is looked for only where the caller names its column.
CSV = Log("csv", "a table of delimited text", states={**ZEEK_STATES, **ARGUS_STATES})
JSON_LINES = Log("jsonl", "JSON Lines", states=CSV.states)
