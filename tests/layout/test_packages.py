"""That a package knows only the packages below it, and that each foreign library stays where it belongs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BELOW_SPARK = ("engine", "format", "transactions", "timeline", "heartbeat", "timegen", "locks", "storage")
MAY_KNOW: dict[str, set[str]] = {
    "storage": set(),
    "locks": {"storage"},
    "timegen": {"locks", "storage"},
    "heartbeat": {"locks", "storage"},
    "timeline": {"storage"},
    "transactions": {"timeline", "heartbeat", "timegen", "locks", "storage"},
    "format": {"timeline", "storage"},
    "engine": {"format", "transactions", "timeline", "heartbeat", "timegen", "locks", "storage"},
    "spark": {*BELOW_SPARK},
    "ui": {*BELOW_SPARK},
    "torture": {"testing", "spark", *BELOW_SPARK},
    "console": {"torture", "ui", "spark", *BELOW_SPARK},
    "testing": {"transactions", "timeline", "heartbeat", "timegen", "locks", "storage"},
}
FOR_ALL = {
    "errors",
    "system",
    "failpoints",
    "option_values",
    "plugins",
    "progress",
    "range_file",
    "retry",
    "notebook",
    "telemetry",
}

SPARK_PACKAGES = {"spark", "console", "torture", "pyspark_lakelatch"}
CLIENT_MODULES = {  # a service's client library, and the only modules that may import it
    "kazoo": {"locks/zookeeper/client.py", "torture/nemesis/half_broken.py"},
    "redis": {"locks/redis/client.py"},
    "pyetcd": set(),  # found by name, so that another library of the same interface will do
    "etcd3": set(),
    "grpc": set(),
    "starlette": {"ui/app.py", "ui/guard.py"},
    "uvicorn": {"ui/server.py"},
    "aiohttp": {"transactions/marker_server/server.py"},
    "boto3": {"locks/dynamodb/client.py"},
    "botocore": {"locks/dynamodb/client.py"},
    "obstore": {"storage/cloud.py", "storage/cloud_client.py", "storage/cloud_objects.py"},
    "fsspec": {"storage/fsspec.py"},
    "sqlglot": {"spark/sql/references.py", *(f"engine/sql/{name}.py" for name in ("parsing", "types", "expressions"))},
    "opentelemetry": {"src/lakelatch/telemetry.py"},
    "testcontainers": {"testing/servers/containers.py"},
    "docker": {"testing/servers/containers.py"},
}


def own_imports(source: Any) -> Iterator[tuple[str, str]]:
    """The packages (or free modules) that a file of ours imports, each with the whole dotted name.

    `import lakelatch` and the names of its function API count as `spark`, where they come from.
    """
    for name in source.imports:
        first, _, rest = name.partition(".")
        if first == "lakelatch":
            part = rest.partition(".")[0]
            yield (part if part in MAY_KNOW or part in FOR_ALL else "spark"), name


def test_every_package_has_its_line_in_the_table(source_tree: Any) -> None:
    assert sorted(MAY_KNOW) == source_tree.packages


def test_the_table_has_no_circle() -> None:
    waiting, placed = dict(MAY_KNOW), set[str]()
    while waiting:
        free = {package for package, known in waiting.items() if known <= placed}
        assert free, f"these know each other: {sorted(waiting)}"
        placed |= free
        waiting = {package: known for package, known in waiting.items() if package not in free}


def test_packages_know_only_packages_below_them(source_tree: Any) -> None:
    seen = 0
    for source in source_tree.shipped:
        if source.package in MAY_KNOW:
            allowed = MAY_KNOW[source.package] | FOR_ALL | {source.package}
            wrong = sorted(name for package, name in own_imports(source) if package not in allowed)
            assert not wrong, f"{source.name} may not import {wrong}"
            seen += 1
    assert seen > 50


def test_the_free_modules_know_no_package(source_tree: Any) -> None:
    free = [source for source in source_tree.shipped if source.package.removeprefix("lakelatch.") in FOR_ALL]
    assert len(free) == len(FOR_ALL)
    for source in free:
        assert {package for package, _ in own_imports(source)} <= FOR_ALL, source.name


def test_the_checker_of_the_torture_shares_nothing_with_the_product(source_tree: Any) -> None:
    checking = [source for source in source_tree.shipped if source.name.startswith("torture/check/")]
    assert len(checking) > 3
    for source in checking:
        assert {package for package, _ in own_imports(source)} <= {"torture", "errors"}, source.name


def test_nothing_shipped_imports_the_test_suites(source_tree: Any) -> None:
    for source in source_tree.shipped:
        if source.package not in ("testing", "torture"):  # which tests, too, and on real servers
            assert all(package != "testing" for package, _ in own_imports(source)), source.name
            assert not {"pytest", "hypothesis"} & {name.split(".")[0] for name in source.imports}, source.name


def test_spark_is_known_above_only(source_tree: Any) -> None:
    users = {source.package.split(".")[0] for source in source_tree.shipped if uses(source, "pyspark")}
    assert "spark" in users and users <= SPARK_PACKAGES


def test_the_engine_does_without_spark(source_tree: Any) -> None:
    """Not a word of it, so that nothing brings it in by another way."""
    engine = [source for source in source_tree.shipped if source.package == "engine"]
    assert len(engine) > 50
    assert not [source.name for source in engine if "pyspark" in source.text or "py4j" in source.text]
    names = [".".join(("lakelatch", *Path(source.name).with_suffix("").parts)) for source in engine]
    script = "import sys; sys.modules['pyspark'] = None; [__import__(name) for name in sys.argv[1:]]"
    done = subprocess.run([sys.executable, "-c", script, *names], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_client_libraries_stay_in_their_own_module(source_tree: Any) -> None:
    for source in source_tree.shipped:
        for library, homes in CLIENT_MODULES.items():
            assert source.name in homes or not uses(source, library), f"{source.name} imports {library}: see {homes}"


def test_private_names_stay_in_their_package(source_tree: Any) -> None:
    for source in source_tree.shipped:
        foreign = [name for package, name in own_imports(source) if package != source.package]
        private = [name for name in foreign if any(part.startswith("_") for part in name.split("."))]
        assert not private, f"{source.name} imports {private}"


def uses(source: Any, library: str) -> bool:
    return any(name.split(".")[0] == library for name in source.imports)
