"""`lakelatch conflicts`: the writes that lost recently, their winners, when the conflict was found, and its cost."""

from __future__ import annotations

from dataclasses import asdict

from rich.markup import escape
from rich.table import Column, Table

from lakelatch.console.base.invocation import Invocation, Outcome, and_more
from lakelatch.transactions.conflicts.report import CONFLICTS_KEPT, Loss, recent_losses

_GROUPS_SHOWN = 2


def show(call: Invocation, limit: int | None) -> Outcome:
    """Shows the last conflicts that losing writes have recorded."""
    losses = recent_losses(call.open_table(), limit or CONFLICTS_KEPT)
    if not losses:
        call.console.print("no write has lost lately")
        return 0, []
    times = [Column(name, min_width=17, no_wrap=True) for name in ("loser", "winner", "seen since")]
    table = Table(*times, "found", "file groups", "seconds", "rows", "bytes", "task s", "writers", box=None)
    for loss in losses:
        table.add_row(
            loss.instant,
            loss.winner,
            loss.seen_time,
            "early" if loss.early else "at its commit",
            escape(_groups(loss)),
            f"{loss.time_lost_s:,.1f}",
            f"{loss.rows_lost:,}",
            f"{loss.bytes_lost:,}",
            f"{loss.task_s_lost:,.1f}",
            escape(f"{loss.writer} lost to {loss.winner_writer or 'another writer'}"),
        )
    call.console.print(table)
    rows, seconds = sum(loss.rows_lost for loss in losses), sum(loss.task_s_lost for loss in losses)
    call.console.print(f"{len(losses)} conflicts; thrown away: {rows:,} rows, {seconds:,.1f} task seconds")
    return 0, [asdict(loss) for loss in losses]


def _groups(loss: Loss) -> str:
    shown = [f"{partition or '.'}/{file_id}" for partition, file_id in loss.file_groups[:_GROUPS_SHOWN]]
    return and_more(shown, loss.file_group_count)
