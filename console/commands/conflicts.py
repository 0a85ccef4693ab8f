"""`lakelatch conflicts`: the writes that lost recently, their winners, when the conflict was found, and its cost."""

from __future__ import annotations

from dataclasses import asdict

from lakelatch.console.base.invocation import Invocation, Outcome, and_more
from lakelatch.transactions.conflicts.report import CONFLICTS_KEPT, Loss, recent_losses

_GROUPS_SHOWN = 2


def show(call: Invocation, limit: int | None) -> Outcome:
    """Shows the last conflicts that losing writes have recorded."""
    losses = recent_losses(call.open_table(), limit or CONFLICTS_KEPT)
    if not losses:
        call.console.print("no write has lost lately")
        return 0, []
    for loss in losses:
        for line in _lines(loss):
            call.console.print(line, markup=False, highlight=False, soft_wrap=True)
    rows, seconds = sum(loss.rows_lost for loss in losses), sum(loss.task_s_lost for loss in losses)
    found = f"{len(losses)} conflict{'s' if len(losses) > 1 else ''}"
    call.console.print(f"{found}; thrown away: {rows:,} rows, {seconds:,.1f} task seconds")
    return 0, [asdict(loss) for loss in losses]


def _lines(loss: Loss) -> list[str]:
    """Who lost to whom; when that was found, and where; what it cost."""
    found = "early, at" if loss.early else "at its commit,"
    return [
        f"{loss.instant} of {loss.writer} lost to {loss.winner} of {loss.winner_writer or 'another writer'}",
        f"  found {found} {loss.seen_time}, on {_groups(loss)}",
        f"  thrown away: {loss.time_lost_s:,.1f} s, {loss.rows_lost:,} rows, {loss.bytes_lost:,} bytes, "
        f"{loss.task_s_lost:,.1f} task seconds",
    ]


def _groups(loss: Loss) -> str:
    shown = [f"{partition or '.'}/{file_id}" for partition, file_id in loss.file_groups[:_GROUPS_SHOWN]]
    return and_more(shown, loss.file_group_count)
