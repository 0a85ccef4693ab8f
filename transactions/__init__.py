"""Transactions: begin, mark, commit, abort; conflicts, markers, rollback."""
