"""What `compact`, `cluster` and `clean` share: Spark while they work, and what they say of plans at their end."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console

from lakelatch.console.commands.arguments import Outcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakelatch.engine.run.result import CommitResult
    from lakelatch.engine.services.cleaning import CleanResult

    Result = TypeVar("Result", CommitResult, CleanResult)


def run_on_spark(
    parsed: argparse.Namespace, console: Console, verb: str, work: Callable[[SparkSession], list[CommitResult]]
) -> list[CommitResult]:
    """What `work` gives, with a local session of `--cores`."""
    from lakelatch.console.commands.sessions import open_session

    with console.status("starting Spark"):
        spark = open_session(f"lakelatch {verb}", parsed.cores, 1024, progress=console.is_terminal)
    try:
        with console.status("rewriting file groups"):
            return work(spark)
    finally:
        spark.stop()


def show_results(
    console: Console, verb: str, results: Sequence[Result], describe: Callable[[Result], str], waiting: list[str]
) -> Outcome:
    """What has completed, in the words of `describe`, and which plans wait for another process or engine."""
    for result in results:
        console.print(f"{result.instant} completed at {result.completion}: {describe(result)}")
    for instant in waiting:
        console.print(f"{instant} waits: another process or engine works on it, or died a moment ago. Try again later")
    if not results and not waiting:
        console.print(f"nothing to {verb}")
    return 0, {"completed": [asdict(result) for result in results], "waiting": waiting}
