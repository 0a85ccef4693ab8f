"""What is explored: sound protocols at small and at large bounds, and one planted mistake at a time."""

from __future__ import annotations

from dataclasses import replace

from archive_model import ArchiveModel, ArchiveRules
from bulk_model import BulkModel, BulkRules
from claims_cases import BESIDE, CLAIM_MISTAKES, GIVEN_BACK, OWN_FILE_MISTAKES
from claims_model import ClaimModel
from claims_state import ClaimRules
from clean_model import CleanModel, CleanRules
from commit_log_model import CANCELLER, COARSE, COMPACTOR, PLAN, LogModel, Rules
from foreign_model import ForeignModel, ForeignRules
from group_cases import GROUP_LARGE, GROUP_MISTAKES, GROUP_SMALL
from history_model import HistoryModel, HistoryRules
from own_writes_cases import OWN_WRITES_MISTAKES, OWN_WRITES_SMALL
from plans_model import PlanModel, PlanRules
from restore_model import RestoreModel, RestoreRules
from search import Case, Planted
from tables_cases import TABLES_LARGE, TABLES_MISTAKES, TABLES_SMALL

SERVICES = (COMPACTOR, CANCELLER)
LOST = "an update was lost"
BOTH = "a plan was both committed and cancelled"
DENIED = "told 'not committed'"
NEVER_WAS = "a reader takes a committed instant for one that never was"
ON_NEITHER = "an instant is on neither timeline"
TAKEN_BACK = "a commit stands on what was taken back"
TAKEN_BACK_IS_LEFT = "data of what was taken back is left"
SEEN_AGAIN = "readers see once more what was taken back"
COMPLETED_AGAIN = "the completed file of w1 is made once more"
OTHERS_SEE = "other engines see what never was"
OTHERS_MISS_DATA = "other engines see a commit whose data is gone"
BASE_CREATED = "creates the slot of its base"
HIDDEN = "a committed row is hidden"
FILES_GONE = "readers see a commit whose files are gone"
TOLD_OF_GONE = "told 'committed' of a file that is gone"
NOT_KEPT = "what a savepoint keeps is gone"

SMALL = [
    Case("log: two of one group", LogModel(Rules(("a", "a"), slots_kept=0))),
    Case("log: a write and a plan", LogModel(Rules(("a", PLAN), slots_kept=0))),
    Case("log: two puts late or repeated", LogModel(Rules(("a", "b"), slots_kept=0, late_puts=2))),
    Case("log: races", LogModel(Rules(("a", "a", "b"), races_most=1, late_puts=0))),
    Case("log: three writers, a late put", LogModel(Rules(("a", "a", "b"), slots_kept=0, races_most=0))),
    Case("log: a zombie beside who is paused", LogModel(Rules(("a", "b", "c"), slots_kept=0, races_most=1))),
    Case("log: two writers and a plan", LogModel(Rules(("a", "b", PLAN), races_most=1, late_puts=0))),
    Case("log: no lock, own clocks", LogModel(Rules(("a", "a", "b"), races_most=1, late_puts=0, time="own"))),
    Case("log: own clocks, late puts", LogModel(Rules(("a", "b"), slots_kept=0, late_puts=2, time="own"))),
    Case("log: own clocks, a plan", LogModel(Rules(("a", PLAN), slots_kept=0, time="own"))),
    Case("log: a lease ends", LogModel(Rules(("a", "a", "b"), races_most=1, late_puts=0, leases_end=1))),
    Case("log: granted twice", LogModel(Rules(("a", "b"), slots_kept=0, leases_end=1, granted_twice=1))),
    Case("log: plan, completion, cancel", LogModel(Rules(SERVICES, slots_kept=0, late_puts=2))),
    Case("log: the same and a writer", LogModel(Rules(("a", *SERVICES), slots_kept=0, races_most=1, late_puts=0))),
    Case("log: Hudi's names, a perfect lock", LogModel(Rules(("a", "a", "b"), numbered=False, leases_end=0))),
    Case("claims: two recoverers", ClaimModel(ClaimRules(recoverers=2, failed_begins=1))),
    Case("claims: repeated requests", ClaimModel(ClaimRules(failed_begins=1, repeated_data=1))),
    Case("claims: recovery from each state", ClaimModel(ClaimRules(recoverers=2, recovers=True))),
    Case("claims: a time given twice", ClaimModel(ClaimRules(drivers=2, beats=0, repeated_times=1))),
    Case("claims: own files", ClaimModel(ClaimRules(1, 0, 1, 2, repeated_data=1, in_driver=True, recovers=True))),
    Case("claims: own files, a time given twice", ClaimModel(ClaimRules(2, 0, repeated_times=1, in_driver=True))),
    Case("claims: claimed ahead", ClaimModel(replace(BESIDE, recoverers=2, repeated_data=1))),
    Case(
        "claims: claimed ahead, a time given twice", ClaimModel(replace(BESIDE, drivers=2, beats=0, repeated_times=1))
    ),
    Case("claims: given back", ClaimModel(replace(GIVEN_BACK, others_commit=1, repeated_removals=1))),
    Case("claims: and beginnings fail", ClaimModel(ClaimRules(2, 1, 0, 0, repeated_times=1, failed_begins=1))),
    Case("plans", PlanModel(PlanRules(writers=1, cancellers=1))),
    Case("plans: two carry out a cancellation", PlanModel(PlanRules(writers=0, repeated_files=0))),
    Case("plans: in part", PlanModel(PlanRules(writers=1, in_part=True))),
    Case("archive: late files", ArchiveModel(ArchiveRules(zombies=(1, 2)))),
    Case("archive: they may take for ever", ArchiveModel(ArchiveRules(zombies=(1, 2), prompt=False))),
    Case("history: manifests", HistoryModel(HistoryRules())),
    Case("clean: beside plans, a savepoint, a restore", CleanModel(CleanRules())),
    Case("restore: beside writers", RestoreModel(RestoreRules())),
    Case("restore: beside a reader", RestoreModel(RestoreRules(writers=2, reads=True))),
    Case("foreign: archiver and rollback", ForeignModel(ForeignRules(helpers=3))),
    Case("foreign: under one lock", ForeignModel(ForeignRules(helpers=3, locked=True))),
    Case("combined: races", LogModel(Rules(("a", "b", *SERVICES), 1, 1, late_puts=0, glued=COARSE))),
    Case("combined", LogModel(Rules(("a", "a", "b", *SERVICES), 1, 0, late_puts=0, glued=COARSE))),
    Case("bulk: two loads and a writer", BulkModel(BulkRules(planners=0))),
    Case("bulk: a load, a writer and a plan", BulkModel(BulkRules(loaders=1))),
    Case("bulk: a load, two writers and a plan", BulkModel(BulkRules(loaders=1, writers=2))),
    *GROUP_SMALL,
    *OWN_WRITES_SMALL,
    *TABLES_SMALL,
]

LARGE = [
    Case("log: a plan, races and late puts", LogModel(Rules(("a", "b", PLAN), races_most=1, late_puts=2))),
    Case("log: three groups, more of all", LogModel(Rules(("a", "b", "c"), slots_kept=0, races_most=1, late_puts=2))),
    Case("log: leases", LogModel(Rules(("a", "a", "b"), 0, 2, late_puts=2, leases_end=3, granted_twice=2))),
    Case("log: four writers", LogModel(Rules(("a", "a", "b", "b"), slots_kept=0, races_most=1, late_puts=0))),
    Case("claims: all faults", ClaimModel(ClaimRules(1, 1, 1, 2, 0, 1, 1, recovers=True))),
    Case("claims: two drivers", ClaimModel(ClaimRules(2, 1, 1, 1, repeated_times=1))),
    Case("plans", PlanModel(PlanRules())),
    Case("archive", ArchiveModel(ArchiveRules(4, zombies=(1, 1, 2)))),
    Case("archive: for ever", ArchiveModel(ArchiveRules(3, zombies=(1, 1, 2), prompt=False))),
    Case("history", HistoryModel(HistoryRules(instants=4, late_puts=2))),
    Case("clean", CleanModel(CleanRules(overwrites=4, cleans=3, restores=2))),
    Case("restore", RestoreModel(RestoreRules(writers=4, repeated_files=2))),
    Case("restore: beside a reader", RestoreModel(RestoreRules(reads=True))),
    Case("foreign", ForeignModel(ForeignRules(helpers=4))),
    Case("combined: races", LogModel(Rules(("a", "a", "b", *SERVICES), 1, 1, late_puts=0, glued=COARSE))),
    Case("combined: a late put", LogModel(Rules(("a", "b", *SERVICES), 0, 0, late_puts=1, glued=COARSE))),
    Case("combined: all", LogModel(Rules(("a", "a", "b", *SERVICES), 1, 1, late_puts=1, glued=COARSE))),
    Case("bulk", BulkModel(BulkRules())),
    *GROUP_LARGE,
    *TABLES_LARGE,
]


def _log(name: str, promise: str, step: str, rules: Rules) -> Planted:
    return Planted(f"log: {name}", LogModel(rules), promise, step)


def _plans(name: str, promise: str, step: str, rules: PlanRules) -> Planted:
    return Planted(f"plans: {name}", PlanModel(rules), promise, step)


def _archive(name: str, promise: str, step: str, rules: ArchiveRules) -> Planted:
    return Planted(f"archive: {name}", ArchiveModel(rules), promise, step)


def _restore(name: str, promise: str, step: str, rules: RestoreRules) -> Planted:
    return Planted(f"restore: {name}", RestoreModel(rules), promise, step)


def _foreign(name: str, promise: str, step: str, rules: ForeignRules) -> Planted:
    return Planted(f"foreign: {name}", ForeignModel(rules), promise, step)


LOG_MISTAKES = [
    _log("no fence, no lock", LOST, "w1 creates its file of time 2", Rules(("a", "a"), numbered=False)),
    _log("no fence, a lease ends", LOST, "the lease of w0 ends", Rules(("a", "a"), numbered=False, leases_end=1)),
    _log(
        "no fence, granted twice",
        LOST,
        "w1 gets the lock as well",
        Rules(("a", "a"), numbered=False, leases_end=0, granted_twice=1),
    ),
    _log(
        "no fence, time before the lock",
        "times do not increase",
        "w0 keeps time 1",
        Rules(("a", "b"), numbered=False, leases_end=0, time="early"),
    ),
    _log("time before the tail is read", "times do not increase", "w0 keeps time 1", Rules(("a", "b"), time="early")),
    _log("time kept across a lost put", "times do not increase", "w0 keeps time 1", Rules(time="kept")),
    _log("lost answer taken for a loss", DENIED, "w0 takes it for a loss", Rules(resolves="loss")),
    _log("blind retry", "in the log twice", "w0 takes it for a loss", Rules(("a", "b"), resolves="blind")),
    _log(
        "watermark ignored",
        "log knows nothing of it",
        "w1 creates slot 1",
        Rules(("a", "b", "c"), 0, looks_at_watermark=False),
    ),
    _log(
        "own file ignored",
        DENIED,
        "w0 finds slot 1 below the watermark",
        Rules(("a", "b", "c"), 0, own_file_decides=False),
    ),
    _log(
        "what was missed ignored",
        LOST,
        "w2 creates slot 2",
        Rules(("a", "a", "b"), 0, late_puts=0, knows_what_it_missed=False),
    ),
    _log("no roll-forward", "passed a commit that it never saw", "w1 shows its file", Rules(rolls_forward=False)),
    _log(
        "a zombie's slot shown",
        "out of the order of their times",
        "a put of w0 for slot 1 arrives late",
        Rules(("a", "b", "c"), 0, shows_last_alone=False),
    ),
    _log(
        "plan beside the log",
        "a plan misses a commit",
        "w1 writes its plan beside the log",
        Rules(("a", PLAN), plan_in_log=False),
    ),
    _log(
        "cancel beside the log",
        "committed after it was cancelled",
        "w1 writes its cancel beside the log",
        Rules(SERVICES, late_puts=0, cancel_in_log=False),
    ),
    _log(
        "executor looks before the last file",
        "committed after it was cancelled",
        "w1 creates slot 2",
        Rules(SERVICES, late_puts=0, executor_shows_last=False),
    ),
    _log(
        "combined, without the look of an executor",
        "committed after it was cancelled",
        "w4 checks up to 1, shows slot 1",
        Rules(("a", "a", "b", *SERVICES), 9, 0, 0, glued=COARSE, executor_shows_last=False),
    ),
]

PLAN_MISTAKES = [
    _plans("cancel without event", BOTH, "c0 says that it is cancelled", PlanRules(1, cancel_in_log=False)),
    _plans(
        "what was missed ignored",
        BOTH,
        "the watermark rises to the tail",
        PlanRules(1, cancellers=1, knows_what_it_missed=False),
    ),
    _plans("older cancellation not seen", BOTH, "e0 commits", PlanRules(1, cancellers=1, lists_before=False)),
    _plans("cancelled though completed", BOTH, "c0 cancels, and is told so", PlanRules(1, checks_completion=False)),
    _plans(
        "names not from the plan",
        "a file of another executor is read as well",
        "e1 makes the file, or finds it",
        PlanRules(1, cancellers=1, names_from_plan=False),
    ),
    _plans("part not seen", BOTH, "e0 commits", PlanRules(1, cancellers=1, in_part=True, lists_before=False)),
    _plans(
        "dropped output not hidden",
        "a file of a part that was called off is read",
        "e0 commits, but for the part that was called off",
        PlanRules(1, cancellers=1, in_part=True, hides_dropped=False),
    ),
    _plans("no bar", "a plan that was cancelled left a file", "c0 bar", PlanRules(1, cancellers=1, bars=False)),
    _plans(
        "no bar for what was removed",
        "a plan that was cancelled left a file",
        "the request for file 0 is repeated",
        PlanRules(1, cancellers=1, leaves_tombstones=False),
    ),
]

ARCHIVE_MISTAKES = [
    _archive("age not asked", NEVER_WAS, "z0 makes file 1", ArchiveRules(zombies=(1, 2), asks_age=False)),
    _archive("history not asked", DENIED, "z0 says that 1 did not happen", ArchiveRules(asks_history=False)),
    _archive(
        "history written last",
        "an incremental reader misses an instant",
        "archiver 0 removes 1",
        ArchiveRules(history_first=False),
    ),
    _archive("not the oldest first", NEVER_WAS, "archiver 0 removes 2", ArchiveRules(oldest_first=False)),
    _archive(
        "what comes back stays",
        NEVER_WAS,
        "z0 makes file 1",
        ArchiveRules(zombies=(1,), archivers=1, prompt=False, removes_again=False),
    ),
]

HISTORY_MISTAKES = [
    Planted(
        "history: manifests are put, not created",
        HistoryModel(HistoryRules(creates=False)),
        ON_NEITHER,
        "manifest 1 arrives late",
    ),
    Planted(
        "history: what counts is not looked at",
        HistoryModel(HistoryRules(looks_after=False)),
        ON_NEITHER,
        "a1 removes old manifests",
    ),
    Planted(
        "history: files go before the manifest counts",
        HistoryModel(HistoryRules(history_first=False)),
        ON_NEITHER,
        "a0 removes up to 1",
    ),
    Planted(
        "history: a version is put", HistoryModel(HistoryRules(puts_no_version=False)), ON_NEITHER, "a0 names version 1"
    ),
]

CLEAN_MISTAKES = [
    Planted("clean: beside the log", CleanModel(CleanRules(in_log=False)), NOT_KEPT, "and versions"),
    Planted(
        "clean: plans that wait ignored",
        CleanModel(CleanRules(heeds_plans=False)),
        "what a plan reads is gone",
        "a plan is made",
    ),
    Planted("clean: savepoints ignored", CleanModel(CleanRules(heeds_savepoints=False)), NOT_KEPT, "version 0 is kept"),
    Planted(
        "clean: a savepoint of what is about to go",
        CleanModel(CleanRules(savepoint_asks=False)),
        NOT_KEPT,
        "a clean of [0] is planned",
    ),
    Planted(
        "clean: a restore of what is about to go",
        CleanModel(CleanRules(restore_asks=False)),
        "the latest version is gone",
        "version 0 is restored",
    ),
]

RESTORE_MISTAKES = [
    _restore("earlier writes go on", TAKEN_BACK, "w2 finds that it may commit", RestoreRules(ends_writers=False)),
    _restore("commits go after the next slot", TAKEN_BACK, "w2 commits", RestoreRules(shows_first=False)),
    _restore("the first one first", OTHERS_SEE, "the completed file of w1 goes", RestoreRules(last_first=False)),
    _restore("decided beside the log", TAKEN_BACK, "w2 commits", RestoreRules(decided_in_log=False)),
    _restore(
        "no tombstones", TAKEN_BACK_IS_LEFT, "the data of w1 is made once more", RestoreRules(leaves_tombstones=False)
    ),
    _restore("data before commits", OTHERS_MISS_DATA, "the data of w1 goes", RestoreRules(commits_go_first=False)),
    _restore("what comes back late counts", SEEN_AGAIN, COMPLETED_AGAIN, RestoreRules(names_what_is_gone=False)),
    _restore("it counts until the inflight file", SEEN_AGAIN, COMPLETED_AGAIN, RestoreRules(from_its_request=False)),
    _restore(
        "a recovery, first one first", OTHERS_SEE, "a recovery finds (1, 2)", RestoreRules(clears_last_first=False)
    ),
    _restore(
        "a second look at names alone",
        "a reader does not know that data was gone",
        COMPLETED_AGAIN,
        RestoreRules(writers=2, reads=True, reads_what_is_named=False),
    ),
]

FOREIGN_MISTAKES = [
    _foreign(
        "made without looking",
        "what was archived is back",
        "w1 makes the file",
        ForeignRules(rolls_back=False, looks=False, looks_again=False),
    ),
    _foreign(
        "made without looking, rolled back",
        FILES_GONE,
        "w0 does not look",
        ForeignRules(locked=True, looks=False, looks_again=False),
    ),
    _foreign("no second look", FILES_GONE, "w0 makes the file", ForeignRules(locked=True, looks_again=False)),
    _foreign("rollback's plan not read", FILES_GONE, "the rollback does: plan", ForeignRules(heeds_plans=False)),
    _foreign("archiver overtaken", NEVER_WAS, "w0 takes the file back", ForeignRules(spares_younger=False)),
    _foreign("history not asked", DENIED, "w0 finds that it was rolled back", ForeignRules(asks_history=False)),
    _foreign("rollback archived", TOLD_OF_GONE, "the rollback does: archive plan", ForeignRules(heeds_lone=False)),
    _foreign(
        "rollback archived, under one lock",
        FILES_GONE,
        "the rollback does: archive plan",
        ForeignRules(locked=True, heeds_lone=False),
    ),
]

BULK_MISTAKES = [
    Planted("bulk: above what is there", BulkModel(BulkRules(asks_if_empty=False)), HIDDEN, "loader 0 stages a base"),
    Planted("bulk: times ignored", BulkModel(BulkRules(heeds_times=False)), HIDDEN, f"loader 0 {BASE_CREATED}"),
    Planted("bulk: base files ignored", BulkModel(BulkRules(heeds_bases=False)), HIDDEN, f"loader 1 {BASE_CREATED}"),
    Planted("bulk: plans ignored", BulkModel(BulkRules(heeds_plans=False)), HIDDEN, f"planner 3 {BASE_CREATED}"),
    Planted("bulk: looked once", BulkModel(BulkRules(looks_again=False)), HIDDEN, "loader 0 loses the slot"),
]

PLANTED = [
    *(*LOG_MISTAKES, *CLAIM_MISTAKES, *OWN_FILE_MISTAKES, *PLAN_MISTAKES, *ARCHIVE_MISTAKES),
    *(*HISTORY_MISTAKES, *CLEAN_MISTAKES, *RESTORE_MISTAKES, *FOREIGN_MISTAKES, *BULK_MISTAKES, *GROUP_MISTAKES),
    *(*TABLES_MISTAKES, *OWN_WRITES_MISTAKES),
]
