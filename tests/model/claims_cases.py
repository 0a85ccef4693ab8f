"""The models of claims, and the mistakes that are planted in them."""

from __future__ import annotations

from dataclasses import replace

from claims_model import ClaimModel
from claims_state import ClaimRules
from search import Planted

ATTEMPT_READ = "a row of an attempt that was given up is read"
LEFT_BEHIND = "a recovery leaves something behind"
OWN = ClaimRules(attempts=0, in_driver=True, recovers=True)
BESIDE = replace(OWN, looks_beside=True)
GIVEN_BACK = replace(BESIDE, drivers=2, beats=0, repeated_times=1, gives_back=True)

CLAIMS_LONG = (
    "claims: recovery from each state",
    "claims: claimed ahead, a time given twice",
    "claims: given back",
)


def _claims(name: str, promise: str, step: str, rules: ClaimRules) -> Planted:
    return Planted(f"claims: {name}", ClaimModel(rules), promise, step)


CLAIM_MISTAKES = [
    _claims(
        "claim not checked against a fresh tail",
        ATTEMPT_READ,
        "w1 is given time 1 once more",
        ClaimRules(2, 1, 0, 0, repeated_times=1, fresh_tail=False),
    ),
    _claims(
        "tasks trust the heartbeat alone",
        ATTEMPT_READ,
        "an attempt of w0 asks whether it may go on",
        ClaimRules(checks_open=False),
    ),
    _claims("list before close", ATTEMPT_READ, "w0 closes", ClaimRules(closes_first=False)),
    _claims("no bar", ATTEMPT_READ, "w0 sweeps", ClaimRules(bars=False)),
    _claims(
        "no bar for what was removed",
        ATTEMPT_READ,
        "the request for the given up file of w0 is repeated",
        ClaimRules(repeated_data=1, leaves_tombstones=False),
    ),
    _claims(
        "check before announcing",
        ATTEMPT_READ,
        "an attempt of w0 announces its file",
        ClaimRules(announces_first=False),
    ),
    _claims(
        "opened again after an error",
        ATTEMPT_READ,
        "the opening of 1 arrives late",
        ClaimRules(failed_begins=1, opens_once=False),
    ),
    _claims("rollback without event", "a committed file is gone", "h0 sweeps", ClaimRules(rollback_in_log=False)),
    _claims(
        "forgets what nobody has ended",
        ATTEMPT_READ,
        "the beat of w0 arrives",
        ClaimRules(forgets_only_ended=False),
    ),
    _claims(
        "a failed beginning forgets itself",
        ATTEMPT_READ,
        "the opening of 1 arrives late",
        ClaimRules(2, 1, 0, 0, repeated_times=1, failed_begins=1, forgets_only_ended=False),
    ),
]

OWN_FILE_MISTAKES = [
    _claims("own files, not asked", LEFT_BEHIND, "h0 lists the markers", replace(OWN, driver_asks="")),
    _claims("own files, the claim is asked", LEFT_BEHIND, "the beat of w0 arrives", replace(OWN, driver_asks="claim")),
    _claims(
        "own files, shown before the look",
        "a committed file is gone",
        "w1 is given time 1 once more",
        replace(BESIDE, drivers=2, beats=0, repeated_times=1, recovers=False, looks_before_showing=False),
    ),
    _claims("claimed ahead, not asked again", LEFT_BEHIND, "h0 lists the markers", replace(BESIDE, driver_asks="")),
    _claims(
        "claimed ahead, when the log was later already",
        LEFT_BEHIND,
        "w0 finds the log later",
        replace(GIVEN_BACK, others_commit=1, later_is_refused=False),
    ),
    _claims(
        "what others have used is given back",
        LEFT_BEHIND,
        "w1 removes its markers",
        replace(GIVEN_BACK, keeps_used=False),
    ),
    _claims("own files, asked first", LEFT_BEHIND, "w0 announces its file", replace(OWN, announces_first=False)),
]
