"""`lakelatch adopt`: checks a table of Java Hudi, and sets the properties that writers on both sides need."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import closing

from rich.console import Console

from lakelatch.console.commands.arguments import Commands, Outcome, open_table
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


def add_parsers(commands: Commands) -> None:
    """`adopt`."""
    adopt = commands.add("adopt", run, "check a table of Java Hudi, and make it writable")
    adopt.add_argument("--buckets", type=int, metavar="N", help=f"{BUCKET_COUNT} of its writers, if no rows show it")
    adopt.add_argument("--hash-field", default="", metavar="FIELDS", help="the fields that they hash, if not the key's")
    adopt.add_argument("--yes", action="store_true", help="set what has to be set without a question")


def run(parsed: argparse.Namespace, console: Console) -> Outcome:
    """Examines the table and sets its properties; 1 if it may not be written, or the user did not agree."""
    if parsed.buckets is not None and not 0 < parsed.buckets < 100_000_000:
        raise InvalidRequest(f"--buckets {parsed.buckets} is not from 1 to 99999999")
    storage = open_table(parsed)
    adoption = _examine(storage, parsed)
    _show(adoption, console)
    done = False
    if adoption.settings and (parsed.yes or _agreed(parsed, console)):
        with (
            closing(open_recorded_locks(storage.uri, parsed.options, recorded_lock_options(storage))) as provider,
            provider.acquire(TABLE_KEY, provider.scope.lock_options.timeout_s),
        ):
            again = _examine(storage, parsed)  # others may have been at work since
            if again.settings != adoption.settings:
                raise InvalidRequest(f"the table at {storage.uri} was changed meanwhile: run the command again")
            update_properties(storage, adoption.settings)
        done = True
        console.print("done: the table may be written")
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


def _examine(storage: Storage, parsed: argparse.Namespace) -> Adoption:
    fields = [name.strip() for name in parsed.hash_field.split(",") if name.strip()]
    return examine(storage, Observer(storage).storage_time_ms(), parsed.buckets, fields)


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


def _agreed(parsed: argparse.Namespace, console: Console) -> bool:
    """Asks the user to agree; programs pass --yes."""
    if parsed.json:
        return False
    try:
        return console.input("set these properties? [y/N] ", markup=False).strip().lower() in ("y", "yes")
    except EOFError:
        return False
