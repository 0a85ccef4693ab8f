"""Azurite, Microsoft's own stand-in for Azure Blob Storage."""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from collections.abc import Mapping
from email.utils import formatdate
from pathlib import Path

from lakelatch.system import System
from lakelatch.testing.fetching import run_fetch
from lakelatch.testing.servers.contract import http_status
from lakelatch.testing.servers.local import LocalServer, fetched, program

VERSION = "3.35.0"
CONTAINER = "lakelatch"
ACCOUNT = "lakelatchtests"
ACCOUNT_KEY = b64encode(b"of-no-value-outside-tests").decode()


class LocalAzurite(LocalServer):
    """The blob service with one account and one container. It is fetched with npm if the cache does not have it."""

    name = "azurite"
    usual_environment: Mapping[str, str] = {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{ACCOUNT_KEY}"}

    def command(self) -> list[str]:
        node = program("node", "install Node.js, or on Debian: apt-get install npm")
        return [
            *(node, str(fetch_azurite() / "node_modules/azurite/dist/src/blob/main.js"), "--location", str(self.data)),
            *("--blobHost", self.host, "--blobPort", str(self.port)),
            *("--silent", "--disableTelemetry", "--skipApiVersionCheck"),
        ]

    def answers(self) -> bool:
        """Whether the container is there, which this makes."""
        return azurite_answers(self.host, self.port, self._system)


def azurite_options(host: str, port: int) -> dict[str, str]:
    """The options for a table in the container, without their prefix."""
    return {
        "endpoint_url": f"http://{host}:{port}/{ACCOUNT}",
        "allow_http": "true",
        "access_key_id": ACCOUNT,
        "secret_access_key": ACCOUNT_KEY,
    }


def azurite_answers(host: str, port: int, system: System) -> bool:
    """Whether the container is there, which this makes with a signed request."""
    path = f"/{ACCOUNT}/{CONTAINER}"
    own = {"x-ms-date": formatdate(system.realtime_ms() / 1000, usegmt=True), "x-ms-version": "2021-12-02"}
    headers = "".join(f"{name}:{value}\n" for name, value in sorted(own.items()))
    text = "PUT" + "\n" * 12 + f"{headers}/{ACCOUNT}{path}\nrestype:container"
    signature = b64encode(hmac.digest(b64decode(ACCOUNT_KEY), text.encode(), "sha256")).decode()
    signed = {**own, "Authorization": f"SharedKey {ACCOUNT}:{signature}", "Content-Length": "0"}
    return http_status(host, port, f"{path}?restype=container", "PUT", signed) in (201, 409)


def fetch_azurite() -> Path:
    """The folder of Azurite's modules, from the cache (`cache_folder`) or from npm's registry."""
    return fetched(f"azurite-{VERSION}", _install)


def _install(folder: Path) -> Path:
    npm = program("npm", "install Node.js, or on Debian: apt-get install npm")
    made = folder / "azurite"
    run_fetch(
        f"Azurite {VERSION} (190 MB on the disk)",
        [*(npm, "install", "--prefix", str(made)), "--no-audit", "--no-fund", "--loglevel=http", f"azurite@{VERSION}"],
        r"http (fetch GET 200|cache) .*\.tgz",
    )
    return made
