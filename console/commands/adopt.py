"""`lakelatch adopt`: checks a table of Java Hudi, and sets the properties that writers on both sides need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing

from rich.console import Console

from lakelatch.console.base.invocation import Invocation, Outcome
from lakelatch.engine.options.write import BUCKET_COUNT
from lakelatch.engine.table.adoption import Adoption, examine
from lakelatch.errors import InvalidRequest
from lakelatch.heartbeat.observer import Observer
from lakelatch.locks.contract import TABLE_KEY
from lakelatch.locks.open import open_recorded_locks
from lakelatch.storage.contract import Storage
from lakelatch.timeline.properties_update import update_properties
from lakelatch.timeline.table_config import recorded_lock_options

_HUDI_LOCKS = "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider"


def run(call: Invocation, buckets: int | None, hash_fields: Sequence[str], yes: bool) -> Outcome:
    """Examines the table and sets its properties; 1 if it may not be written, or the user did not agree."""
    storage = call.open_table()
    adoption = _examine(storage, buckets, hash_fields)
    _show(adoption, call.console)
    done = False
    if adoption.settings and (yes or _agreed(call)):
        with (
            closing(open_recorded_locks(storage.uri, call.options, recorded_lock_options(storage))) as provider,
            provider.acquire(TABLE_KEY, provider.scope.lock_options.timeout_s),
        ):
            again = _examine(storage, buckets, hash_fields)  # others may have been at work since
            if again.settings != adoption.settings:
                raise InvalidRequest(f"the table at {storage.uri} was changed meanwhile: run the command again")
            update_properties(storage, adoption.settings)
        done = True
        call.console.print("done: the table may be written")
    writable = adoption.may_be_written and (done or not adoption.settings)
    return (0 if writable else 1), {
        "table": adoption.config.name,
        "version": adoption.config.version,
        "type": adoption.config.table_type,
        "read": adoption.may_be_read,
        "write": writable,
        "unreadable": adoption.unreadable,
        "refusals": list(adoption.refusals),
        "settings": dict(adoption.settings),
        "set": done,
        "java": java_options(adoption),
        "lakelatch": own_options(),
    }


def java_options(adoption: Adoption) -> dict[str, str]:
    """The options that Java writers need when ours write too, apart from the lock itself."""
    config, count = adoption.config, adoption.bucket_count
    options = {
        "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL (or NON_BLOCKING_CONCURRENCY_CONTROL)",
        "hoodie.clean.failed.writes.policy": "LAZY",
        "hoodie.index.type": "BUCKET",
        "hoodie.index.bucket.engine": "SIMPLE",
        BUCKET_COUNT: str(count) if count else "as the table has",
        "hoodie.metadata.enable": "false",
        "hoodie.compact.inline": "false (below Hudi 1.2, which would take plans of live executors)",
    }
    if config.hash_fields:
        options["hoodie.bucket.index.hash.field"] = ",".join(config.hash_fields)
    if config.version == 8:
        options |= {"hoodie.write.table.version": "8", "hoodie.write.auto.upgrade": "false"}
    return options


def own_options() -> dict[str, str]:
    """The options that our writers need when Java's write too, apart from the lock itself."""
    return {
        "hoodie.write.lock.provider": f"{_HUDI_LOCKS}, or another of Hudi's classes, the same on both sides",
        "hoodie.write.lock.zookeeper.url": "host:port,host:port (ports in the url), the same on both sides",
        "hoodie.time.generator.type": "skew_adjusting",
    }


def _examine(storage: Storage, buckets: int | None, fields: Sequence[str]) -> Adoption:
    return examine(storage, Observer(storage).storage_time_ms(), buckets, fields)


def _show(adoption: Adoption, console: Console) -> None:
    config = adoption.config
    console.print(f"{config.name}: {config.table_type}, table version {config.version}", markup=False)
    console.print("read: " + (f"no, {adoption.unreadable}" if adoption.unreadable else "yes"), markup=False)
    if adoption.unreadable:
        return
    if adoption.refusals:
        console.print("write and compact: no", markup=False)
        for refusal in adoption.refusals:
            console.print(f"  - {refusal}", markup=False)
        return
    console.print("write and compact: " + ("yes, after these are set" if adoption.settings else "yes"), markup=False)
    _show_options(adoption.settings, console)
    console.print("Java writers need, apart from the lock:", markup=False)
    _show_options(java_options(adoption), console)
    console.print("and ours need:", markup=False)
    _show_options(own_options(), console)


def _show_options(options: Mapping[str, str], console: Console) -> None:
    for name, value in options.items():
        console.print(f"  {name}={value}", markup=False, soft_wrap=True)


def _agreed(call: Invocation) -> bool:
    """Asks the user to agree; programs pass --yes."""
    if call.json or call.quiet:
        return False
    try:
        return call.console.input("set these properties? [y/N] ", markup=False).strip().lower() in ("y", "yes")
    except EOFError:
        return False
