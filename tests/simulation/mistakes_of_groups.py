"""Mistakes of group commit: those of its model (`tests/model/group_cases.py`) that exist in the product's code."""

from __future__ import annotations

from mistakes import Mistake

from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.projection import Projections
from lakelatch.transactions.attempts import group
from lakelatch.transactions.attempts.checks import At
from lakelatch.transactions.attempts.commit import Commit

OF_GROUPS: dict[str, Mistake] = {
    "withdrawn by its file": Mistake(
        Commit,
        "_withdraw",
        (("event = run(context, Deciding(decide, state.instant))", "event = None"),),
        seeds=20,
        first=41,
    ),
    "members that do not see each other": Mistake(
        At,
        "since",
        (("[*self._still_there(), *self.group]", "self._still_there()"),),
        seeds=20,
        first=14,
    ),
    "one time for all of a slot": Mistake(
        CommitLog,
        "_place_others",
        (
            ("time = take_time(max(events[-1].time, draft.instant))", "time = events[-1].time"),
            ("if time <= events[-1].time:", "if False:"),
        ),
        seeds=20,
        first=1,
    ),
    "the last file alone": Mistake(
        CommitLog,
        "project",
        (
            (
                "self.projections.show_all(tail.events, self.content)",
                "self.projections.show_all(tail.events[-1:], self.content)",
            ),
        ),
        seeds=100,
        first=6,
    ),
    "files in any order": Mistake(
        Projections,
        "show_all",
        (("for step in steps:", "for step in reversed(steps):"),),
        seeds=20,
        first=1,
    ),
    "a member's file decides": Mistake(
        CommitLog,
        "_counts",
        (
            (
                "if self.projections.was_shown(event):",
                "names = self.snapshots.list()\n"
                "    if any(one.completion for each in self._read(event.number) for one in names.of(each.instant)):",
            ),
        ),
        seeds=400,
        first=25,
    ),
    "the record is gone, so not committed": Mistake(
        Commit,
        "decide",
        (
            (
                "own = found_completed(",
                "from lakelatch.errors import TransactionEnded\n"
                "        if not self._context.storage.exists(record_path(self.above)):\n"
                "            self._turn = None\n"
                "            return Ended(TransactionEnded('its record is gone', instant=self.above))\n"
                "        own = found_completed(",
            ),
        ),
        seeds=100,
        first=142,
    ),
    "refused without a look for what others have committed": Mistake(
        group,
        "found_completed",
        (("if own is not None:\n        return own", "if True:\n        return None"),),
        seeds=20,
        first=6,
    ),
    "missed, so not committed": Mistake(
        group,
        "found_completed",
        (("if not times:", "if True:"),),
        seeds=200,
        first=25,
    ),
}
