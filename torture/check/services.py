"""Checks of table services: a cancelled plan stays cancelled, an archived instant existed, no live file is gone.

Live files are determined here only by names and commits. Each check yields sentences that name what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from lakelatch.torture.check.evidence import Evidence
from lakelatch.torture.check.log_reading import Row
from lakelatch.torture.check.table import differing, fold, rewritten_as_it_was, some
from lakelatch.torture.check.table_files import Commit, TableFiles

Group = tuple[str, str]  # partition, file id
_BUCKET_DIGITS = 8


@dataclass
class Live:
    """The file groups after some commits: their base files by instant, and their logs by completion."""

    bases: dict[Group, dict[str, str]] = field(default_factory=dict)
    logs: dict[Group, list[tuple[str, str]]] = field(default_factory=dict)
    gone: set[Group] = field(default_factory=set)

    def add(self, commit: Commit) -> None:
        for group, path in zip(commit.groups, commit.paths, strict=True):
            if path.endswith(".parquet"):
                self.bases.setdefault(group, {})[commit.instant] = path
            else:
                self.logs.setdefault(group, []).append((commit.completion, path))
        self.gone.update(commit.replaced_groups)

    def needed(self) -> Iterator[str]:
        """The files that a reader of this state reads: each group's last base file, and the logs completed since."""
        for group in self.bases.keys() | self.logs.keys():
            if group not in self.gone:
                bases = self.bases.get(group, {})
                last = max(bases, default="")
                if last:
                    yield bases[last]
                yield from (path for completion, path in self.logs.get(group, ()) if completion > last)


def live_of(table: TableFiles) -> Live:
    """The state after all commits."""
    live = Live()
    for commit in table.commits:
        live.add(commit)
    return live


def live_files_are_there(table: TableFiles) -> Iterator[str]:
    """Every file of the latest slices is in the table, with content."""
    for path in sorted(live_of(table).needed()):
        if not table.files.get(path):
            taken = table.cleaned.get(path)
            yield f"{path} is live, and is gone" + (f": the clean {taken} took it away" if taken else "")


def live_files_hold_all_rows(table: TableFiles) -> Iterator[str]:
    """The latest slices have, of each key that was ever written, the row that was written last; once in all."""
    wanted = fold(row for _, rows in table.written for row in rows)
    found: dict[str, Row] = fold(row for path in sorted(live_of(table).needed()) for row in table.rows(path))
    if wrong := differing(wanted, found):
        yield f"the live files say something else than was committed of {some(wrong)}"


def cleans_keep_what_readers_need(evidence: Evidence) -> Iterator[str]:
    """The files that a clean removes were not live any more when the commits that it retains began."""
    table = evidence.table
    retained = int(evidence.setting("commits_retained", 0))
    if not retained:
        return
    by_clean: dict[str, list[str]] = {}
    for path, clean in table.cleaned.items():
        by_clean.setdefault(clean, []).append(path)
    live, turn = Live(), 0
    for clean in sorted(by_clean):
        before = sum(commit.completion < clean for commit in table.commits)
        for commit in table.commits[turn : max(turn, before - retained)]:
            live.add(commit)
        turn = max(turn, before - retained)
        needed = sorted(set(live.needed()).intersection(by_clean[clean]))
        if needed:
            yield f"the clean {clean} removed files that were live {retained} commits before it: {some(needed)}"


def clusterings_keep_every_row(table: TableFiles) -> Iterator[str]:
    """A base file that a clustering made holds exactly what its bucket's planned slice said, each key once."""
    for commit in table.commits:
        if commit.operation != "CLUSTER":
            continue
        planned = {(one.partition, one.file_id[:_BUCKET_DIGITS]): one for one in table.clustering(commit.instant)}
        for (partition, file_id), path in zip(commit.groups, commit.paths, strict=True):
            if not path.endswith(".parquet"):
                continue
            one = planned.get((partition, file_id[:_BUCKET_DIGITS]))
            if one is None:
                yield f"the clustering {commit.name} made {path}, which its plan does not speak of"
                continue
            if (partition, one.file_id) not in commit.replaced_groups:
                yield f"the clustering {commit.name} made {path}, and does not replace {one.file_id}"
            yield from rewritten_as_it_was(table, commit, one, path, "slice says")


def cancelled_in_the_log_stays_so(table: TableFiles) -> Iterator[str]:
    """No slot completes an instant that an earlier one has cancelled or ended, and no ended one is committed."""
    over: dict[str, int] = {}
    for slot in table.live_slots:
        if slot["kind"] == "abort" or (slot["kind"] == "cancel" and not slot["file_groups"]):
            over.setdefault(slot["target"], slot["number"])
        elif slot["kind"] == "complete" and slot["instant"] in over:
            number = over[slot["instant"]]
            yield f"slot {slot['number']} completes {slot['instant']}, which slot {number} has cancelled"
    for instant in sorted(table.aborted & table.by_instant.keys()):
        yield f"{instant} has ended as cancelled, and is committed as {table.by_instant[instant].name}"


def cancelled_is_not_committed(evidence: Evidence) -> Iterator[str]:
    """A plan whose cancellation was acknowledged never completes: as a whole, or on the cancelled file groups."""
    table = evidence.table
    for line in evidence.history.lines:
        if line["event"] == "aborted" and line["instant"] in table.by_instant:
            yield f"{line['process']} ended {line['instant']}, and it is committed"
        if line["event"] != "cancelled" or line["instant"] not in table.by_instant:
            continue
        commit, groups = table.by_instant[line["instant"]], [tuple(group) for group in line["groups"]]
        if not groups:
            yield f"{line['process']} cancelled {line['instant']}, and it completed: {commit.name}"
        replaced = sorted(commit.replaced_groups.intersection(groups))
        if replaced:
            yield f"{line['process']} got the answer that {commit.name} leaves {some(replaced)} alone, and it did not"


def served_is_completed(evidence: Evidence) -> Iterator[str]:
    """An instant that a service reported done is on the timeline or in the history; one that it gave up is not."""
    ended = {name.partition("_")[0] for name in evidence.table.ended}
    for line in evidence.history.lines:
        if line["event"] != "served" or not line["instant"]:
            continue
        if line["outcome"] == "done" and line["instant"] not in ended:
            yield f"{line['process']} reported the {line['service']} {line['instant']} as done, and it is lost"
        if line["outcome"] == "cancelled" and line["instant"] in evidence.table.by_instant:
            yield f"{line['process']} gave {line['instant']} up, and it completed"
