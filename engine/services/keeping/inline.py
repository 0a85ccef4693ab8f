"""Table services after a commit: those that the write's options turn on, if they are due.

The commit has completed before any service begins, and no failure here makes it fail: its result reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from zlib import crc32

from lakelatch.engine.options.table_services.services import ServiceOptions
from lakelatch.engine.run.report import DONE, SCHEDULED, ServiceRun
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.services.counters import Counters
from lakelatch.engine.services.keeping.maintenance import keep
from lakelatch.engine.services.keeping.steps import Job, Step, Steps
from lakelatch.engine.services.service import ServiceContext
from lakelatch.engine.write.attempt import part_of_thread
from lakelatch.timeline.actions import COMMIT, DELTA_COMMIT, REPLACE_COMMIT
from lakelatch.timeline.instant import completed
from lakelatch.timeline.log.events import COMPLETE, Event

_TABLES_MAX = 1000
#: Slots as large as that of the commit, by completed instants, or a tenth of all of these if that is more.
_AGAIN_AFTER = 10
#: Steps of tables that were due and found nothing to do, or failed: the number of completed instants then, and the one
#: at which they are tried again. Not after each commit: a timeline that cannot be archived yet, say, is due with every
#: commit, and each attempt costs a listing. A lost entry costs one more attempt.
_in_vain: dict[tuple[str, str], tuple[int, int]] = {}


def after_commit(result: CommitResult, context: ServiceContext, options: ServiceOptions) -> CommitResult:
    """Runs the services that are due, and returns the result with them. Makes no request if nothing is due."""
    if result.repeated or not options.inline.enabled:
        return result
    slot = context.manager.context.log.known_of(result.completion)
    if not looks_for_its_slot(result.completion, slot):
        return result
    copies = context.table.config.copies_on_write
    action = REPLACE_COMMIT if result.file_groups_replaced else COMMIT if copies else DELTA_COMMIT
    done = [completed(event.instant, event.action, event.time) for event in slot if event.kind == COMPLETE]
    counters = context.counters(done or [completed(result.instant, action, result.completion)])
    steps = Steps(options).after_commit(result.bytes_written)
    runs = keep(context, (_unless_in_vain(step, max(len(done), 1)) for step in steps), counters)
    return replace(result, services=runs) if runs else result


def looks_for_its_slot(completion: str, slot: Sequence[Event]) -> bool:
    """Whether the writer of this commit is the one of its slot who looks at what is due, for all of them.

    Drawn, so that it is not always one whose options turn a service off. If it dies, what is due is so after the next
    slot, too. Of the changes of one transaction the last one looks, whoever else has a slot with it.
    """
    if len(slot) < 2 or slot[0].has_decision or part_of_thread() is not None:
        return True
    return slot[crc32(slot[-1].time.encode()) % len(slot)].time == completion


def _unless_in_vain(step: Step, slot_size: int) -> Step:
    """The step, which is not due again for a while after it had no effect, unless it is never put off.

    Of many writers each remembers what was in vain for itself, so this is counted in slots of so many commits.
    """
    if step.never_put_off:
        return step

    def due(context: ServiceContext, counters: Counters) -> bool:
        if not step.due(context, counters):
            return False
        seen, until = _in_vain.get((context.table.storage.uri, step.service), (0, 0))
        return not seen <= len(counters.snapshot.by_completion) < until

    def jobs(context: ServiceContext, counters: Counters) -> Iterator[Job]:
        key, now = (context.table.storage.uri, step.service), len(counters.snapshot.by_completion)
        for instant, act in step.run(context, counters):
            yield instant, partial(_noted, act, key, (now, now + max(_AGAIN_AFTER * slot_size, now // 10)))

    return Step(step.service, due, jobs)


def _noted(act: Callable[[], ServiceRun | None], key: tuple[str, str], span: tuple[int, int]) -> ServiceRun | None:
    if key not in _in_vain and len(_in_vain) >= _TABLES_MAX:
        _in_vain.clear()
    _in_vain[key] = span
    run = act()
    if run is not None and run.outcome in (DONE, SCHEDULED):
        _in_vain.pop(key, None)
    return run
