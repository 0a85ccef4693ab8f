"""That a room knows only the rooms below it, and that each foreign library stays where it belongs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

MAY_KNOW: dict[str, set[str]] = {
    "storage": set(),
    "locks": {"storage"},
    "timegen": {"locks", "storage"},
    "heartbeat": {"locks", "storage"},
    "timeline": {"storage"},
    "transactions": {"timeline", "heartbeat", "timegen", "locks", "storage"},
    "pipeline": {"transactions", "timeline", "heartbeat", "timegen", "locks", "storage"},
    "torture": {"testing", "pipeline", "transactions", "timeline", "heartbeat", "timegen", "locks", "storage"},
    "console": {"torture", "pipeline", "transactions", "timeline", "heartbeat", "timegen", "locks", "storage"},
    "testing": {"transactions", "timeline", "heartbeat", "timegen", "locks", "storage"},
}
FOR_ALL = {"errors", "system", "failpoints", "option_values"}

SPARK_ROOMS = {"pipeline", "console", "torture", "pyspark_lakelatch"}
CLIENT_MODULES = {  # a service's client library, and the only modules that may import it
    "kazoo": {"locks/zookeeper_client.py", "torture/half_broken.py"},
    "redis": {"locks/redis.py"},
    "pyetcd": set(),  # found by name, so that another library of the same interface will do
    "etcd3": set(),
    "grpc": set(),
    "aiohttp": {"transactions/marker_server.py"},
    "boto3": {"locks/dynamodb.py"},
    "botocore": {"locks/dynamodb.py"},
    "obstore": {"locks/object_storage.py"},
    "testcontainers": {"testing/servers/containers.py"},
    "docker": {"testing/servers/containers.py"},
}


def own_imports(source: Any) -> Iterator[tuple[str, str]]:
    """The rooms (or free modules) that a file of ours imports, each with the whole dotted name.

    `import lakelatch` and the names of its function API count as the pipeline, where they come from.
    """
    for name in source.imports:
        first, _, rest = name.partition(".")
        if first == "lakelatch":
            part = rest.partition(".")[0]
            yield (part if part in MAY_KNOW or part in FOR_ALL else "pipeline"), name


def test_every_room_has_its_line_in_the_table(source_tree: Any) -> None:
    assert sorted(MAY_KNOW) == source_tree.rooms


def test_the_table_has_no_circle() -> None:
    waiting, placed = dict(MAY_KNOW), set[str]()
    while waiting:
        free = {room for room, known in waiting.items() if known <= placed}
        assert free, f"these know each other: {sorted(waiting)}"
        placed |= free
        waiting = {room: known for room, known in waiting.items() if room not in free}


def test_rooms_know_only_rooms_below_them(source_tree: Any) -> None:
    seen = 0
    for source in source_tree.shipped:
        if source.room in MAY_KNOW:
            allowed = MAY_KNOW[source.room] | FOR_ALL | {source.room}
            wrong = sorted(name for room, name in own_imports(source) if room not in allowed)
            assert not wrong, f"{source.name} may not import {wrong}"
            seen += 1
    assert seen > 50


def test_the_free_modules_know_no_room(source_tree: Any) -> None:
    free = [source for source in source_tree.shipped if source.room.removeprefix("lakelatch.") in FOR_ALL]
    assert len(free) == len(FOR_ALL)
    for source in free:
        assert {room for room, _ in own_imports(source)} <= FOR_ALL, source.name


def test_nothing_shipped_imports_the_test_suites(source_tree: Any) -> None:
    for source in source_tree.shipped:
        if source.room not in ("testing", "torture"):  # which tests, too, and on real servers
            assert all(room != "testing" for room, _ in own_imports(source)), source.name
            assert not {"pytest", "hypothesis"} & {name.split(".")[0] for name in source.imports}, source.name


def test_spark_is_known_above_only(source_tree: Any) -> None:
    users = {source.room.split(".")[0] for source in source_tree.shipped if uses(source, "pyspark")}
    assert "pipeline" in users and users <= SPARK_ROOMS


def test_client_libraries_stay_in_their_own_module(source_tree: Any) -> None:
    for source in source_tree.shipped:
        for library, homes in CLIENT_MODULES.items():
            assert source.name in homes or not uses(source, library), f"{source.name} imports {library}: see {homes}"


def test_private_names_stay_in_their_room(source_tree: Any) -> None:
    for source in source_tree.shipped:
        foreign = [name for room, name in own_imports(source) if room != source.room]
        private = [name for name in foreign if any(part.startswith("_") for part in name.split("."))]
        assert not private, f"{source.name} imports {private}"


def uses(source: Any, library: str) -> bool:
    return any(name.split(".")[0] == library for name in source.imports)
