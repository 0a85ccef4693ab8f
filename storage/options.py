"""How a table's place is reached: options under `lakelatch.storage.`, for what the environment does not say."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from lakelatch.errors import InvalidRequest
from lakelatch.option_values import flag, whole_number

PREFIX = "lakelatch.storage."
ENDPOINT_URL = f"{PREFIX}endpoint_url"
REGION = f"{PREFIX}region"
ALLOW_HTTP = f"{PREFIX}allow_http"
ACCESS_KEY_ID = f"{PREFIX}access_key_id"
SECRET_ACCESS_KEY = f"{PREFIX}secret_access_key"
TIMEOUT_S = f"{PREFIX}timeout_s"
CA_FILE = f"{PREFIX}ca_file"
PROXY_URL = f"{PREFIX}proxy_url"
KNOWN_STORAGE_KEYS = frozenset(
    {ENDPOINT_URL, REGION, ALLOW_HTTP, ACCESS_KEY_ID, SECRET_ACCESS_KEY, TIMEOUT_S, CA_FILE, PROXY_URL}
)

_TIMEOUT_S = 30

#: By the fields of `StorageOptions`.
_KEYS = {
    "endpoint_url": ENDPOINT_URL,
    "region": REGION,
    "allow_http": ALLOW_HTTP,
    "access_key_id": ACCESS_KEY_ID,
    "secret_access_key": SECRET_ACCESS_KEY,
}


@dataclass(frozen=True)
class StorageOptions:
    """The options of a place as the caller gave them. Empty ones are taken from where the place's own tools look.

    `timeout_s` is the time in which a request ends. `ca_file` has the certificates, in PEM, that are trusted besides
    the usual ones, and `proxy_url` is what requests go by. The others are for S3, what speaks its language, and Azure,
    where the credentials are the account's name and its key.
    """

    endpoint_url: str = ""
    region: str = ""
    allow_http: bool = False
    timeout_s: int = _TIMEOUT_S
    access_key_id: str = field(default="", repr=False)
    secret_access_key: str = field(default="", repr=False)
    ca_file: str = ""
    proxy_url: str = field(default="", repr=False)

    @classmethod
    def from_options(cls, values: Mapping[str, str]) -> StorageOptions:
        """Errors: `InvalidRequest`, naming the option, its value and what is possible."""
        return cls(
            endpoint_url=values.get(ENDPOINT_URL, "").strip(),
            region=values.get(REGION, "").strip(),
            allow_http=flag(values, ALLOW_HTTP),
            timeout_s=whole_number(values, TIMEOUT_S, _TIMEOUT_S, 1, 3600),
            access_key_id=values.get(ACCESS_KEY_ID, "").strip(),
            secret_access_key=values.get(SECRET_ACCESS_KEY, "").strip(),
            ca_file=values.get(CA_FILE, "").strip(),
            proxy_url=values.get(PROXY_URL, "").strip(),
        )

    def refuse(self, names: Collection[str], place: str, instead: str) -> None:
        """`InvalidRequest` for a field that is set and has no meaning at this place."""
        for name in names:
            if getattr(self, name):
                raise InvalidRequest(
                    f"{_KEYS[name]} means nothing at {place}: remove it, and use {instead}", option=_KEYS[name]
                )
