"""What a table offers outside of a transaction over several tables alone, since it acts at once."""

from __future__ import annotations

from typing import NoReturn

from lakelatch.errors import InvalidRequest
from lakelatch.storage.uris import without_secrets


class RefusedInside:
    """A table inside a block that refuses its services. Errors: `InvalidRequest`, with the table as it was."""

    path: str

    def restore(self, *given: object, **options: object) -> NoReturn:
        self._refuse("restore")

    def compact(self, *given: object, **options: object) -> NoReturn:
        self._refuse("compact")

    def cluster(self, *given: object, **options: object) -> NoReturn:
        self._refuse("cluster")

    def clean(self, *given: object, **options: object) -> NoReturn:
        self._refuse("clean")

    def maintain(self, *given: object, **options: object) -> NoReturn:
        self._refuse("maintain")

    def _refuse(self, name: str) -> NoReturn:
        raise InvalidRequest(
            f"{name} of {without_secrets(self.path)} is no part of a transaction over several tables: it would act at "
            "once, whatever becomes of the block. Call it outside of the block, on the table itself, before the block "
            "begins or after it has ended",
            option="table",
        )
