"""The options of one provider: `hoodie.write.lock.<provider>.*`, checked once, secrets kept out of sight."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from lakelatch.errors import InvalidRequest
from lakelatch.locks.contract import LockScope
from lakelatch.locks.options import DEFAULT_LEASE_S, PREFIX
from lakelatch.option_values import flag
from lakelatch.storage.uris import without_secrets as without_secrets

_FROM_ENVIRONMENT, _FROM_FILE = "env:", "file:"


@dataclass(frozen=True)
class BackendOptions:
    """One provider's own options, by their last part. `of` refuses names that the provider does not know.

    The values may hold secrets, so that the representation shows the names only. Equal options are equal services.
    """

    provider: str
    values: Mapping[str, str] = field(repr=False)
    lease_s: float = DEFAULT_LEASE_S

    @classmethod
    def of(
        cls, provider: str, scope: LockScope, known: frozenset[str], default_lease_s: float = DEFAULT_LEASE_S
    ) -> BackendOptions:
        """The options of this provider in a scope; other providers' options are ignored."""
        start = f"{PREFIX}{provider}."
        own = [(key, value) for key, value in scope.options.items() if key.startswith(start)]
        values = {key.removeprefix(start): str(value).strip() for key, value in own}
        for name in values:
            if name not in known:
                raise InvalidRequest(
                    f"{start}{name} is no option of the lock provider {provider!r}: use one of "
                    f"{', '.join(sorted(known))}",
                    option=start + name,
                )
        return cls(provider, values, scope.lock_options.lease_s or default_lease_s)

    def key(self, name: str) -> str:
        """The whole option key, for messages."""
        return f"{PREFIX}{self.provider}.{name}"

    def text(self, name: str, default: str = "") -> str:
        """A value as the user gave it, or the default if it is missing or empty."""
        return self.values.get(name) or default

    def required(self, name: str, example: str) -> str:
        """A value that has to be there. Errors: `InvalidRequest`, with the example."""
        value = self.text(name)
        if not value:
            raise InvalidRequest(
                f"{self.key(name)} is missing, which the lock provider {self.provider!r} needs: set it, as in "
                f"{example!r}",
                option=self.key(name),
            )
        return value

    def secret(self, name: str) -> str:
        """A value that may stand elsewhere: `env:NAME` is read from the environment, `file:PATH` from a file."""
        value = self.text(name)
        if value.startswith(_FROM_ENVIRONMENT):
            found = os.environ.get(value[len(_FROM_ENVIRONMENT) :])
            if found is None:
                raise InvalidRequest(
                    f"{self.key(name)}={value!r}: this process has no such environment variable", option=self.key(name)
                )
            return found
        if value.startswith(_FROM_FILE):
            try:
                with open(value[len(_FROM_FILE) :], encoding="utf-8") as file:
                    return file.read().strip()
            except (OSError, ValueError) as error:
                raise InvalidRequest(
                    f"{self.key(name)}={value!r} cannot be read ({type(error).__name__})", option=self.key(name)
                ) from None
        return value

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number within bounds. Errors: `InvalidRequest`."""
        text = self.text(name, str(default))
        if not re.fullmatch(r"[0-9]{1,12}", text) or not least <= int(text) <= most:
            raise InvalidRequest(
                f"{self.key(name)}={text!r} is out of range: use a whole number from {least} to {most}",
                option=self.key(name),
            )
        return int(text)

    def flag(self, name: str, default: bool = False) -> bool:
        """Whether an option is on. Errors: `InvalidRequest`."""
        return flag(self.key(name), self.text(name, str(default)))

    def identity(self) -> tuple[object, ...]:
        """The key by which two providers of this kind share their session."""
        return self.provider, tuple(sorted(self.values.items())), self.lease_s
