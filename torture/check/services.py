"""What table services must keep: what was called off stays so, what was put away was there, and no live file has gone.

Which files are live is decided here by names and commits alone. Each check yields sentences that name what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from lakelatch.torture.check.evidence import Evidence
from lakelatch.torture.check.log_reading import Row
from lakelatch.torture.check.table import fold, some
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
        self.gone.update((partition, file_id) for partition, ids in commit.replaced.items() for file_id in ids)

    def needed(self) -> Iterator[str]:
        """What a reader of this state reads: the last base file of each group, and the logs that completed after it."""
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
    """Whatever the latest slices consist of lies in the table, with content."""
    for path in sorted(live_of(table).needed()):
        if not table.files.get(path):
            taken = table.cleaned.get(path)
            yield f"{path} is live, and is gone" + (f": the clean {taken} took it away" if taken else "")


def live_files_hold_all_rows(table: TableFiles) -> Iterator[str]:
    """The latest slices have, of each key that was ever written, the row that was written last; once in all."""
    wanted = fold(row for _, rows in table.written for row in rows)
    found: dict[str, Row] = fold(row for path in sorted(live_of(table).needed()) for row in table.rows(path))
    wrong = sorted(key for key in wanted.keys() | found.keys() if wanted.get(key) != found.get(key))
    if wrong:
        yield f"the live files say something else than was committed of {some(wrong)}"


def cleans_keep_what_readers_need(evidence: Evidence) -> Iterator[str]:
    """What a clean removes was not live any more when the commits that it retains began."""
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
            yield f"the clean {clean} took away what was live {retained} commits before it: {some(needed)}"


def clusterings_keep_every_row(table: TableFiles) -> Iterator[str]:
    """A base file that a clustering made holds exactly what its bucket's planned slice said, each key once."""
    for commit in table.commits:
        if commit.operation != "CLUSTER":
            continue
        gone = {(partition, file_id) for partition, ids in commit.replaced.items() for file_id in ids}
        planned = {(one.partition, one.file_id[:_BUCKET_DIGITS]): one for one in table.clustering(commit.instant)}
        for (partition, file_id), path in zip(commit.groups, commit.paths, strict=True):
            if not path.endswith(".parquet"):
                continue
            one = planned.get((partition, file_id[:_BUCKET_DIGITS]))
            if one is None:
                yield f"the clustering {commit.name} made {path}, which its plan does not speak of"
                continue
            if (partition, one.file_id) not in gone:
                yield f"the clustering {commit.name} made {path}, and does not replace {one.file_id}"
            wanted = fold(row for source in filter(None, (one.base, *one.logs)) for row in table.rows(source))
            rows = table.rows(path)
            found = {row.key: row for row in rows}
            if len(found) != len(rows):
                yield f"{path} of {commit.name} holds a key twice"
            wrong = sorted(key for key in wanted.keys() | found.keys() if wanted.get(key) != found.get(key))
            if wrong:
                yield f"{path} of {commit.name} is not what its slice says about {some(wrong)}"


def cancelled_in_the_log_stays_so(table: TableFiles) -> Iterator[str]:
    """No slot completes what an earlier one has called off or ended, and what has ended is not committed."""
    over: dict[str, int] = {}
    for slot in table.live_slots:
        if slot["kind"] == "abort" or (slot["kind"] == "cancel" and not slot["file_groups"]):
            over.setdefault(slot["target"], slot["number"])
        elif slot["kind"] == "complete" and slot["instant"] in over:
            number = over[slot["instant"]]
            yield f"slot {slot['number']} completes {slot['instant']}, which slot {number} has called off"
    for instant in sorted(table.aborted & table.by_instant.keys()):
        yield f"{instant} has ended as cancelled, and is committed as {table.by_instant[instant].name}"


def cancelled_is_not_committed(evidence: Evidence) -> Iterator[str]:
    """What was acknowledged as called off never completes: the whole plan, or its part on some file groups."""
    table = evidence.table
    for line in evidence.history.lines:
        if line["event"] == "aborted" and line["instant"] in table.by_instant:
            yield f"{line['process']} ended {line['instant']}, and it is committed"
        if line["event"] != "cancelled" or line["instant"] not in table.by_instant:
            continue
        commit, groups = table.by_instant[line["instant"]], [tuple(group) for group in line["groups"]]
        if not groups:
            yield f"{line['process']} was told that {line['instant']} is called off, and it completed: {commit.name}"
        gone = {(partition, file_id) for partition, ids in commit.replaced.items() for file_id in ids}
        replaced = sorted(gone.intersection(groups))
        if replaced:
            yield f"{line['process']} was told that {commit.name} leaves {some(replaced)} alone, and it did not"


def served_is_completed(evidence: Evidence) -> Iterator[str]:
    """What a service said that it did is on the timeline or in the history; what it gave up is not."""
    ended = {name.partition("_")[0] for name in evidence.table.ended}
    for line in evidence.history.lines:
        if line["event"] != "served" or not line["instant"]:
            continue
        if line["outcome"] == "done" and line["instant"] not in ended:
            yield f"{line['process']} was told that the {line['service']} {line['instant']} is done, and it is lost"
        if line["outcome"] == "cancelled" and line["instant"] in evidence.table.by_instant:
            yield f"{line['process']} gave {line['instant']} up, and it completed"
