"""The second process of a check: tries to take a scratch lock that the first one holds.

It is given its options by standard input, since they may hold secrets, and answers on standard output.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing

from lakelatch.errors import LakelatchError, LockTimeout, Unavailable
from lakelatch.locks.contract import LockScope
from lakelatch.locks.open import open_lock_provider

SCRATCH_KEY = "doctor"


def is_let_in(table_uri: str, options: Mapping[str, str], timeout_s: float) -> bool:
    """Whether another process of this machine is granted the scratch lock now, by the same options.

    Errors: `Unavailable` if it could not tell in time.
    """
    asked = json.dumps({"table": table_uri, "options": dict(options)})
    command = [sys.executable, "-m", "lakelatch.engine.doctor.second_writer"]
    try:
        ran = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=timeout_s, check=False)
        return bool(json.loads(ran.stdout)["granted"])
    except subprocess.TimeoutExpired:
        raise Unavailable(f"a second process had no answer within {timeout_s:g} s") from None
    except (ValueError, KeyError):
        said = ran.stdout.strip() or ran.stderr.strip()[-300:] or f"exit code {ran.returncode}"
        raise Unavailable(f"a second process could not ask for the lock: {said}") from None


def _answer(asked: str) -> dict[str, object]:
    values = json.loads(asked)
    try:
        with closing(open_lock_provider(LockScope(values["table"], values["options"]))) as provider:
            provider.acquire(SCRATCH_KEY, 0).release()
    except LockTimeout:
        return {"granted": False}
    except LakelatchError as error:
        return {"error": error.message}
    return {"granted": True}


if __name__ == "__main__":
    print(json.dumps(_answer(sys.stdin.read())))
