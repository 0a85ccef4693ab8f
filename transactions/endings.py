"""What a transaction is told that somebody else has ended."""

from __future__ import annotations

from lakelatch.errors import TransactionEnded
from lakelatch.transactions.transaction import TransactionState


def completed_elsewhere(state: TransactionState) -> TransactionEnded:
    return TransactionEnded(
        f"{state.action} {state.instant} was completed by another process first: nothing is left to do",
        instant=state.instant,
    )


def ended(state: TransactionState, why: str) -> TransactionEnded:
    return TransactionEnded(
        f"transaction {state.instant} was ended by others ({why}), and nothing of it is visible: begin a new one. If "
        "this writer was paused, raise hoodie.client.heartbeat.interval_in_ms",
        instant=state.instant,
    )
