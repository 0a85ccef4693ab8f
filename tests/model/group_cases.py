"""What is explored of group commit: the sound protocol, and one planted mistake at a time."""

from __future__ import annotations

from dataclasses import replace

from group_model import FINE, GroupModel, GroupRules
from search import Case, Planted

QUEUES = GroupRules(("", "", ""), alone_first=False)  # leaves its record without trying alone
REMOVED = replace(QUEUES, races_most=0, slots_kept=0)
FULL_LISTS = replace(REMOVED, late_lists=False, removed_at_once=True)
PAIR = replace(QUEUES, groups=("", ""))
CONFLICT = replace(QUEUES, groups=("", "a", "a"))
ALL = replace(PAIR, slots_kept=0, moves=(0,), gives_up=(0,), victims=(0,), doubled_records=True)
TWICE = "an instant ends twice in the log"
PASSED = "an incremental reader has passed a commit that it never saw"
MOVED = "a commit names files that its owner has moved"
UNKNOWN = "readers see a file that is not in the log"
DENIED = "told 'not committed'"
UNREAD = "a caller does not read"
UPDATE = "an update was lost"
TIMES = "times do not increase along the log"
CLAIMED = "told 'committed', and the log knows nothing"


def _case(name: str, rules: GroupRules) -> Case:
    return Case(f"group: {name}", GroupModel(rules))


def _planted(name: str, promise: str, step: str, rules: GroupRules) -> Planted:
    return Planted(f"group: {name}", GroupModel(rules), promise, step)


GROUP_SMALL = [
    _case("three try alone first", GroupRules(races_most=2, glued=FINE)),
    _case("three lead at once", replace(QUEUES, races_most=0, glued=FINE)),
    _case("two of one file group, slots are removed", replace(CONFLICT, slots_kept=0)),
    _case("records are listed after the tail is read", replace(CONFLICT, slots_kept=0, lists_first=False)),
    _case("moves, an end, a recovery", ALL),
    _case("slots are removed", replace(QUEUES, slots_kept=1)),
    _case("files at once, slots are removed", replace(QUEUES, slots_kept=1, shows="at once")),
    _case("files at once, moves, an end, a recovery", replace(ALL, shows="at once")),
    _case("late puts", replace(CONFLICT, slots_kept=0, late_puts=1, races_most=0)),
]

GROUP_LONG = ("group: slots are removed", "group: late puts")

GROUP_LARGE = [
    _case("three alone first, a late put", GroupRules(("", "", ""), slots_kept=0, late_puts=1)),
    _case("all, a late put", replace(ALL, late_puts=1)),
    _case("all, in one file group", replace(ALL, groups=("a", "a"), slots_kept=1, late_puts=1)),
    _case("all, nothing glued", replace(ALL, groups=("a", "a"), slots_kept=1, glued=FINE)),
    _case("three, and one moves", replace(REMOVED, moves=(0,))),
    _case("three, an end and a recovery", replace(CONFLICT, slots_kept=1, races_most=0, gives_up=(0,), victims=(1,))),
    _case("three, the tail first, a recovery", replace(REMOVED, lists_first=False, victims=(0,))),
    _case("files at once, all, a late put", replace(ALL, late_puts=1, shows="at once")),
    _case("files at once, all, in one file group", replace(ALL, groups=("a", "a"), slots_kept=1, shows="at once")),
    _case("four", replace(REMOVED, groups=("", "", "a", "a"))),
]

GROUP_MISTAKES = [
    _planted("a record counted twice", TWICE, "w1 creates slot 2", replace(PAIR, checks_ended=False)),
    _planted(
        "a doubled record counted twice",
        TWICE,
        "w0 leads, and finds records of [w1, w1], decides on [w0, w1, w1] at 0",
        replace(PAIR, doubled_records=True, once_in_group=False),
    ),
    _planted(
        "withdrawn by its file",
        MOVED,
        "w0 removes its record, moves its files, leaves its record",
        replace(PAIR, moves=(0,), withdraws="by its file"),
    ),
    _planted(
        "withdrawn by name",
        MOVED,
        "w1 creates slot 2",
        replace(PAIR, moves=(0,), doubled_records=True, withdraws="by name"),
    ),
    _planted(
        "members that do not see each other",
        UPDATE,
        "w0 leads, and finds records of [w1], decides on [w0, w1] at 0",
        replace(PAIR, groups=("a", "a"), sees_group=False),
    ),
    _planted("one time for all of a slot", TIMES, "w0 creates slot 1", replace(PAIR, times="same")),
    _planted("times above the tail's first", TIMES, "w2 creates slot 2", replace(QUEUES, times="above the first")),
    _planted("the last file alone", PASSED, "w2 shows w1's file of time 2", replace(QUEUES, shows="last")),
    _planted(
        "files in any order",
        PASSED,
        "w0 shows w1's file of time 2",
        replace(PAIR, shows="at once", reads="any"),
    ),
    _planted(
        "the file before the newest alone",
        PASSED,
        "w0 shows w2's file of time 3",
        replace(QUEUES, shows="at once", reads="next"),
    ),
    _planted(
        "the own file alone",
        UNREAD,
        "w1 leads, and finds records of [], finds its commit",
        replace(PAIR, shows="at once", concludes="own file"),
    ),
    _planted("watermark ignored", UNKNOWN, "w1 creates slot 1", replace(FULL_LISTS, below="counts")),
    _planted("a member's file decides", UNKNOWN, "w1 creates slot 1", replace(FULL_LISTS, below="member")),
    _planted("the names of files decide", UNKNOWN, "w1 creates slot 1", replace(FULL_LISTS, below="own file")),
    _planted(
        "what began below the watermark taken along",
        TWICE,
        "w1 creates slot 3",
        replace(QUEUES, groups=("a", "a", ""), slots_kept=0, heeds_start=False),
    ),
    _planted("a slot's first event decides", DENIED, "w0 takes it for a loss", replace(PAIR, resolves="first")),
    _planted(
        "another's slot trusted",
        CLAIMED,
        "w1 finds its event in slot 1 of w2",
        replace(FULL_LISTS, resolves="trusts", victims=(2,)),
    ),
    _planted(
        "missed, so not committed",
        DENIED,
        "w1 leads, and finds records of [], was missed for too long",
        replace(REMOVED, finds_own_file=False),
    ),
    _planted("decided at an older tail", TWICE, "w1 goes on to tail 1", replace(QUEUES, fresh=False)),
    _planted(
        "the record is gone, so not committed", DENIED, "w1 finds its record gone", replace(PAIR, record_gone="lost")
    ),
]
