"""Files that are rightly gone: those that cleans have removed, or are about to."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from lakelatch.timeline.actions import CLEAN
from lakelatch.timeline.instant import requested
from lakelatch.timeline.log.whole_timeline import WholeTimeline, read_plan
from lakelatch.timeline.plans.clean_plan import CleanPlan
from lakelatch.timeline.service_metadata import read_cleaned


def cleaned_after(whole: WholeTimeline, time: str) -> Mapping[str, Mapping[str, str]]:
    """Names of files that cleans removed after a time, by partition, each with its clean.

    A clean before that time removed nothing that a reader of that time needed; a waiting one may be running.
    """
    found: dict[str, dict[str, str]] = {}
    cleans = whole.completed((CLEAN,), after=time)
    contents = whole.storage.together(*(partial(whole.content, instant) for instant in cleans))
    for instant, content in zip(cleans, contents, strict=True):
        for partition, names in read_cleaned(content, instant.path).items():
            found.setdefault(partition, {}).update(dict.fromkeys(names, instant.requested))
    for waiting in (one for one in whole.active.pending if one.action == CLEAN):
        planned = requested(waiting.requested, CLEAN)
        plan = CleanPlan.from_avro(read_plan(whole.storage, planned), planned.path)
        for partition, names in plan.files.items():
            found.setdefault(partition, {}).update(dict.fromkeys(names, waiting.requested))
    return found
