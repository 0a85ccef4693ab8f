"""How a table's place is reached: options under `lakelatch.storage.`, for what the environment does not say."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from lakelatch.errors import InvalidRequest
from lakelatch.option_values import ParsedOptions, flag, option, stripped, whole

PREFIX = "lakelatch.storage."
ACCESS_KEY_ID = f"{PREFIX}access_key_id"
SECRET_ACCESS_KEY = f"{PREFIX}secret_access_key"
TIMEOUT_S = f"{PREFIX}timeout_s"


@dataclass(frozen=True)
class StorageOptions(ParsedOptions):
    """The options of a place as the caller gave them. Empty ones are taken from where the place's own tools look.

    `timeout_s` is the time in which a request ends. `ca_file` has the certificates, in PEM, that are trusted besides
    the usual ones, and `proxy_url` is what requests go by. The others are for S3, what speaks its language, and Azure,
    where the credentials are the account's name and its key.
    """

    endpoint_url: str = option(f"{PREFIX}endpoint_url", stripped, "")
    region: str = option(f"{PREFIX}region", stripped, "")
    allow_http: bool = option(f"{PREFIX}allow_http", flag, False)
    timeout_s: int = option(TIMEOUT_S, whole(1, 3600), 30)
    access_key_id: str = option(ACCESS_KEY_ID, stripped, "", secret=True)
    secret_access_key: str = option(SECRET_ACCESS_KEY, stripped, "", secret=True)
    ca_file: str = option(f"{PREFIX}ca_file", stripped, "")
    proxy_url: str = option(f"{PREFIX}proxy_url", stripped, "", secret=True)

    def refuse(self, names: Collection[str], place: str, instead: str) -> None:
        """`InvalidRequest` for a field that is set and has no meaning at this place."""
        for name in names:
            if getattr(self, name):
                key = f"{PREFIX}{name}"
                raise InvalidRequest(f"{key} means nothing at {place}: remove it, and use {instead}", option=key)


KNOWN_STORAGE_KEYS = frozenset(one.key for one in StorageOptions.options())
