"""Names of batches, by which commits recognise a repeated one, so that it is written once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from lakelatch.errors import InvalidRequest
from lakelatch.option_values import Option, as_given, whole
from lakelatch.storage.checksums import json_object

BATCH_APPLICATION = "hoodie.datasource.write.streaming.checkpoint.identifier"
BATCH_NUMBER = "lakelatch.write.batch.number"
CHECKPOINT_KEY = "_hudi_streaming_sink_checkpoint"  # in a commit's metadata; Hudi's streaming sink has the same
_number = whole(0, 2**63 - 1)
BATCH_OPTIONS = (Option(BATCH_APPLICATION, as_given, None), Option(BATCH_NUMBER, _number, None))


@dataclass(frozen=True)
class Batch:
    """A batch of an application, which numbers its batches upwards; each is committed at most once."""

    application: str
    number: int

    @classmethod
    def from_options(cls, values: Mapping[str, str]) -> Batch | None:
        """The batch named by the options, or None. Errors: `InvalidRequest` if only one of the two is set."""
        given = [key for key in (BATCH_APPLICATION, BATCH_NUMBER) if key in values]
        if not given:
            return None
        if len(given) == 1 or not values[BATCH_APPLICATION].strip():
            raise InvalidRequest(
                f"{BATCH_APPLICATION} and {BATCH_NUMBER} name a batch together, and {given[0]}="
                f"{values[given[0]]!r} stands alone: set both, or call lakelatch.write_batch",
                option=given[0],
            )
        return cls(values[BATCH_APPLICATION].strip(), _number(BATCH_NUMBER, values[BATCH_NUMBER]))

    @property
    def extra(self) -> dict[str, str]:
        """The metadata that a commit of this batch carries, in the form of Hudi's streaming sink."""
        return {CHECKPOINT_KEY: json.dumps({self.application: str(self.number)})}

    def is_named_in(self, extra: Mapping[str, str]) -> bool:
        """Whether a commit's metadata is that of this batch."""
        named = json_object(extra.get(CHECKPOINT_KEY, "{}"))
        return named is not None and named.get(self.application) == str(self.number)


def refuse_batch(batch: Batch | None, what: str) -> None:
    """`InvalidRequest` where a repeated batch would not be noticed."""
    if batch is not None:
        raise InvalidRequest(
            f"{BATCH_APPLICATION}={batch.application!r}: {what} cannot tell a repeated batch: "
            "use lakelatch.write or write_batch",
            option=BATCH_APPLICATION,
        )
