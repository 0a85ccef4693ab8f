"""What a writer process does in these tests; run as a script, it tells its story on standard output, a line an event.

`serve` forks one for each line of its standard input, so that many need not import the same.

`scenario PLACE` visits every step of the protocol once or more; `remembered PLACE` claims the time of its second write
beside the check of what it remembers; `crowd PLACE SEED COUNT` commits among others, with a
lock provider that excludes nobody; `member PLACE GROUP` is one commit of a crowd, which leaves its record at once. A
place in an object store is reached by the environment; the kernel's locks then lie in the folder that `LOCKS_VARIABLE`
names.
"""

from __future__ import annotations

import json
import os
import random  # noqa: TID251  (seeded)
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))  # for `plain_member`

from plain_member import PlainMember

from lakelatch.errors import CommitUnknown, LakelatchError, TransactionEnded, WriteConflict
from lakelatch.failpoints import ENVIRONMENT_VARIABLE, turn_on
from lakelatch.heartbeat.contract import HeartbeatSettings
from lakelatch.locks.contract import LockProvider, LockScope
from lakelatch.locks.filesystem.provider import FilesystemLockProvider
from lakelatch.locks.options import FILESYSTEM_PATH
from lakelatch.storage import Storage, open_storage
from lakelatch.testing.faults.lying_lock import LyingLockProvider
from lakelatch.timegen.hybrid import HybridTimeGenerator
from lakelatch.timeline.metadata import CommitMetadata, WriteStat
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.attempts.attempt import run
from lakelatch.transactions.attempts.checks import At, in_order
from lakelatch.transactions.attempts.commit import Commit
from lakelatch.transactions.base.outcome import Displaced, Staged, committed_or_raise
from lakelatch.transactions.base.settings import NON_BLOCKING, OPTIMISTIC, TransactionSettings
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.memory import TableMemory
from lakelatch.transactions.transaction import Transaction

QUICK = HeartbeatSettings(interval_ms=100, tolerable_misses=4)
QUICK_IN_A_STORE = HeartbeatSettings(interval_ms=100, tolerable_misses=14)  # where a stamp may be a second off
PATIENT = HeartbeatSettings(interval_ms=100, tolerable_misses=20)
SLOTS_KEPT = 2
LOCKS_VARIABLE = "FAULT_WRITER_LOCKS"
_ATTEMPTS_MAX = 200


def open_manager(
    place: str,
    kind: type[LockProvider] = FilesystemLockProvider,
    mode: str = OPTIMISTIC,
    heartbeat: HeartbeatSettings | None = None,
    slots_kept: int = SLOTS_KEPT,
    memory: TableMemory | None = None,
) -> TransactionManager:
    storage, locks = open_storage(place), os.environ.get(LOCKS_VARIABLE)
    provider = kind(LockScope(storage.uri, {FILESYSTEM_PATH: locks} if locks else {}))
    settings = TransactionSettings(mode=mode, lock_timeout_s=30, heartbeat=heartbeat or quick(place))
    generator = HybridTimeGenerator(provider)
    return TransactionManager(storage, provider, generator, settings, slots_kept=slots_kept, memory=memory)


def quick(place: str) -> HeartbeatSettings:
    """The shortest heartbeats that a place allows."""
    return QUICK_IN_A_STORE if "://" in place else QUICK


def add_file(transaction: Transaction, group: str, content: bytes = b"rows", attempt: int = 0) -> WriteStat:
    name = f"{group}_{attempt}_{transaction.instant}.log"
    transaction.markers.create_data_file("", name, content)
    return WriteStat("", group, name)


def tell(transaction: Transaction, outcome: str) -> None:
    completion = transaction.committed.completion if transaction.committed else ""
    print(json.dumps({"instant": transaction.instant, "outcome": outcome, "completion": completion}), flush=True)


def commit(transaction: Transaction, metadata: CommitMetadata) -> None:
    """Commits and tells how it ended; others may do so if it has lost a slot to them."""
    tell_end_of(transaction, lambda: transaction.commit(metadata, member=PlainMember(metadata)))


def tell_end_of(transaction: Transaction, work: Callable[[], object]) -> None:
    try:
        work()
    except (WriteConflict, TransactionEnded):
        tell(transaction, "refused")
        raise
    except CommitUnknown:
        tell(transaction, "unknown")
        raise
    tell(transaction, "committed")


def write(manager: TransactionManager) -> None:
    """Two data files, one of which a task had to write twice."""
    transaction = manager.begin()
    add_file(transaction, "a", attempt=1)
    stats = (add_file(transaction, "a"), add_file(transaction, "b"))
    commit(transaction, CommitMetadata(stats, "UPSERT"))


def write_own(manager: TransactionManager) -> None:
    """Two data files of this process, and one that was announced and never made."""
    transaction = manager.begin(for_tasks=False)
    assert transaction.own_files is not None
    stats = []
    for group in ("a", "b"):
        name = f"{group}_0_{transaction.instant}.log"
        transaction.own_files.create("", name, b"rows")
        stats.append(WriteStat("", group, name))
    own_files, metadata = transaction.own_files, CommitMetadata(tuple(stats), "UPSERT")

    def announce_and_commit() -> None:
        own_files.announce_all([("", f"a_1_{transaction.instant}.log")])
        transaction.commit(metadata, member=PlainMember(metadata))

    tell_end_of(transaction, announce_and_commit)


def compact(manager: TransactionManager) -> None:
    """Schedules and carries out a compaction of nothing."""

    def build(snapshot: Snapshot) -> bytes:
        return b"plan"

    instant = manager.schedule(build)
    if instant is not None:
        commit(manager.execute(instant), CommitMetadata((), "COMPACT", compacted=True))


def abort(manager: TransactionManager) -> None:
    transaction = manager.begin()
    add_file(transaction, "a")
    transaction.abort()
    tell(transaction, "refused")


def crowd_in(manager: TransactionManager) -> None:
    """As after a slot that its process has lost."""
    manager.memory.queue.left = 4


def write_in_crowd(manager: TransactionManager) -> None:
    """A write that finds at its turn, when its record is there, that its rows have to move."""
    crowd_in(manager)
    transaction = manager.begin()
    moves = [{("", "a"): "c"}]

    def is_displaced(snapshot: Snapshot, at: At) -> Displaced | None:
        return Displaced(moves.pop()) if moves else None

    def relocate(found: Displaced) -> Staged:
        return Staged(CommitMetadata((add_file(transaction, "c"),), "UPSERT"))

    metadata = CommitMetadata((add_file(transaction, "a"),), "UPSERT")
    attempt = Commit(transaction.context).start(
        transaction, Staged(metadata), in_order([is_displaced]), relocate, member=PlainMember(metadata)
    )
    tell_end_of(transaction, lambda: committed_or_raise(run(transaction.context, attempt)))
    manager.memory.queue.left = 0


def member(place: str, group: str) -> None:
    manager = open_manager(place, heartbeat=PATIENT)
    crowd_in(manager)
    transaction = manager.begin()
    commit(transaction, CommitMetadata((add_file(transaction, group),), "UPSERT"))


def remembered(place: str) -> None:
    manager = open_manager(place)
    write(manager)
    manager = open_manager(place, memory=manager.memory)
    manager.begin_ahead()
    manager.recover()
    try:
        write_own(manager)
    except TransactionEnded as error:
        print(error, file=sys.stderr)


def scenario(place: str) -> None:
    """A failed step does not end it: the next one starts anew, as a user would."""
    manager = open_manager(place)
    steps: tuple[Callable[[TransactionManager], None], ...] = (
        write,
        write_own,
        compact,
        abort,
        write,
        write_own,
        write,
        write_own,
        write,
        write_in_crowd,
    )
    for step in steps:
        try:
            step(manager)
        except LakelatchError as error:
            print(f"{step.__name__}: {error}", file=sys.stderr)


def crowd(place: str, seed: int, count: int) -> None:
    draw = random.Random(seed)
    managers = [
        open_manager(place, LyingLockProvider, mode, PATIENT, slots_kept=8) for mode in (OPTIMISTIC, NON_BLOCKING)
    ]
    for number in range(count):
        optimistic = draw.random() < 0.7
        groups = draw.sample(["a", "b", "c", "d"], draw.choice((1, 1, 2)))
        for _ in range(_ATTEMPTS_MAX):
            try:
                _write_on_what_is_there(managers[0 if optimistic else 1], groups, optimistic)
            except (WriteConflict, TransactionEnded):
                continue
            break
        else:
            raise SystemExit(f"transaction {number} lost {_ATTEMPTS_MAX} times")


def _write_on_what_is_there(manager: TransactionManager, groups: list[str], optimistic: bool) -> None:
    manager.recover()
    transaction = manager.begin()
    stats = []
    for group in groups:
        base = instants_of(manager.storage, group)
        content = json.dumps({"group": group, "base": base, "optimistic": optimistic}).encode()
        stats.append(add_file(transaction, group, content))
    commit(transaction, CommitMetadata(tuple(stats), "UPSERT"))


def instants_of(storage: Storage, group: str) -> list[str]:
    """Completed writes to a group, as a reader finds them."""
    completed = Snapshot.load(storage).completion_times()
    names = (name for name in storage.list("").files if name.startswith(f"{group}_"))
    return sorted({instant for name in names if (instant := name[:-4].rpartition("_")[2]) in completed})


def serve() -> list[str]:
    """Forks for each line that asks for a writer, and returns in the new process, with its arguments.

    A line that asks for the end of one, or its being stopped, is answered by its status, the others by a process id.
    """
    for line in sys.stdin:
        asked = json.loads(line)
        if "wait_for" in asked:
            print(os.waitpid(asked["wait_for"], os.WUNTRACED)[1], flush=True)
            continue
        pid = os.fork()
        if not pid:
            return _become_writer(**asked)
        print(pid, flush=True)
    raise SystemExit


def _become_writer(arguments: list[str], said: str, environment: dict[str, str]) -> list[str]:
    for descriptor, path in enumerate((os.devnull, f"{said}.out", f"{said}.err")):
        opened = os.open(path, os.O_CREAT | os.O_RDWR)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.environ.clear()
    os.environ.update(environment)
    turn_on(environment[ENVIRONMENT_VARIABLE])
    return arguments


def main(kind: str, *arguments: str) -> None:
    if kind == "serve":
        main(*serve())
    elif kind == "scenario":
        scenario(*arguments)
    elif kind == "remembered":
        remembered(*arguments)
    elif kind == "member":
        member(*arguments)
    else:
        place, seed, count = arguments
        crowd(place, int(seed), int(count))


if __name__ == "__main__":
    main(*sys.argv[1:])
