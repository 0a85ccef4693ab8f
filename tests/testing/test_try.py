"""Everything to try in one go: the compose file says what our servers say, and the small writers write."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from ruamel.yaml import YAML

import lakelatch
from lakelatch.retry import Backoff, tries
from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.ports import free_port
from lakelatch.testing.servers.containers import IMAGES
from lakelatch.testing.servers.reach import place_environment
from lakelatch.testing.servers.seaweedfs import BUCKET, S3_ENVIRONMENT

ROOT = Path(__file__).parents[2]
TRY = ROOT / "docs" / "try"


class Store:
    """The store as containers reach it."""

    host, port = "seaweedfs", IMAGES["seaweedfs"].port


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    read: dict[str, Any] = YAML(typ="safe").load(ROOT / "compose.yaml")["services"]
    return read


@pytest.mark.parametrize("name", IMAGES)
def test_a_server_is_the_one_that_tests_start(services: dict[str, Any], name: str) -> None:
    image, service = IMAGES[name], services[name]
    assert (service["image"], service["command"]) == (image.name, list(image.command))
    assert service.get("environment", {}) == image.environment
    assert f"{name}={name}:{image.port}" in services["writers"]["command"]
    assert name in services["writers"]["depends_on"]


def test_writers_and_the_page_reach_the_store_and_each_table(services: dict[str, Any]) -> None:
    for name in ("writers", "page"):
        assert services[name]["environment"] == {**place_environment(Store()), **S3_ENVIRONMENT}
    shown = [word for word in services["page"]["command"] if "/" in word]
    in_folders = [f"/tables/{name}" for name in ("filesystem", *IMAGES) if name != "seaweedfs"]
    assert sorted(shown) == sorted([*in_folders, f"s3://{BUCKET}/storage"])


def test_files_that_containers_mount_are_there(services: dict[str, Any]) -> None:
    mounted = [one.partition(":")[0] for each in services.values() for one in each.get("volumes", ()) if one[0] == "."]
    assert len(mounted) == 5 and all((ROOT / path).is_file() for path in mounted)
    for service in services.values():
        build = service.get("build")
        if build:
            context, file = (build, "Dockerfile") if isinstance(build, str) else (build["context"], build["dockerfile"])
            assert (ROOT / context / file).is_file()


def test_it_is_a_compose_file() -> None:
    command = [str(Path(sys.executable).with_name("check-jsonschema")), "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*command, str(ROOT / "compose.yaml")], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def writers(tmp_path: Path) -> Iterator[int]:
    """The port where writers show what they measure, on a table with the kernel's locks alone."""
    port = free_port()
    command = [sys.executable, str(TRY / "writers.py"), str(tmp_path), str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            yield port
        finally:
            process.terminate()


def test_small_writers_write_and_are_measured(writers: int, tmp_path: Path) -> None:
    measured = ""
    for _ in tries(REAL_SYSTEM, Backoff(0.2, 0.2), limit_s=60):
        with suppress(URLError, ConnectionError), urlopen(f"http://127.0.0.1:{writers}/metrics", timeout=10) as answer:
            measured = answer.read().decode()
        committed = re.findall(r'lakelatch_commits_total\{[^}]*lakelatch_writer="(filesystem-[12])"', measured)
        if len(set(committed)) == 2:
            break
    else:
        pytest.fail(measured)
    rows = lakelatch.open(tmp_path / "filesystem").to_arrow()
    assert rows.num_rows == 20 and sum(rows["amount"].to_pylist()) > 0


@pytest.mark.long
def test_all_of_it_starts_without_containers_and_ends() -> None:
    command = [sys.executable, str(TRY / "local.py"), "--seconds", "1", "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    said = {line.partition(" ")[0]: line for line in done.stdout.splitlines()}
    assert {*IMAGES, "writers", "prometheus", "page", "tables"} <= said.keys() and "left out" not in done.stdout
    assert "/?token=" in said["page"] and said["tables"].count("/tables/") == 5
