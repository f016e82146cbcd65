"""Retries calls of storage and catalogs that are away; an error that a wait cannot help is raised at once.

    NETWORK_CONNECTION, SLOW_DOWN, 503 ...     tried again after 1 s, 2 s, 4 s ... 30 s, for five minutes
    NO_SUCH_BUCKET, ACCESS_DENIED ...          ConfigError: a person has to change something

The libraries raise OSError for all of these, with the kind in its text: Arrow in Amazon's names, deltalake in the XML
that the server sent. Texts go to logs, so keys and passwords are taken out of them first.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from sparrowmq.errors import ConfigError
from sparrowmq.spark.failures import one_line

T = TypeVar("T")

MAX_WAIT_S: Final = 300.0
_MAX_PAUSE_S: Final = 30.0
_MAX_TEXT_CHARS: Final = 400

# What libraries raise beside OSError, where they are loaded.
_LIBRARY_ERRORS: Final = {
    "deltalake.exceptions": ("DeltaError",),
    "pyiceberg.exceptions": ("RESTError", "CommitFailedException", "WaitingForLockException"),
    "sqlalchemy.exc": ("SQLAlchemyError",),
    "botocore.exceptions": ("BotoCoreError", "ClientError"),
}

# Amazon's names of errors, without the underscores that Arrow writes between their words, in small letters.
_PERMANENT_FAULTS: Final = {
    "nosuchbucket": "make the bucket, or correct its name",
    "invalidbucketname": "correct the name of the bucket",
    "invalidaccesskeyid": "correct AWS_ACCESS_KEY_ID, or the profile (AWS_PROFILE)",
    "signaturedoesnotmatch": "correct AWS_SECRET_ACCESS_KEY, or the profile (AWS_PROFILE)",
    "expiredtoken": "renew the session's keys (AWS_SESSION_TOKEN)",
    "accessdenied": "give these keys the rights to list, read, write and delete there, or use others",
    "permanentredirect": "set AWS_REGION to the region of the bucket",
    "authorizationheadermalformed": "set AWS_REGION to the region of the bucket",
    "password authentication failed": "correct the user or the password of the catalog",
    '" does not exist': "make the database or the role of the catalog, or correct the uri of the catalog",
    "403 forbidden": "give these keys the rights to list, read, write and delete there, or use others",
    "unauthorizederror": "correct the token or the credential of the catalog",
    "forbiddenerror": "give the token of the catalog the right to do this",
}
_TRANSIENT_FAULTS: Final = (
    "networkconnection", "slowdown", "serviceunavailable", "internalfailure", "internalerror", "requesttimeout",
    "requesttimetooskewed", "throttling", "toomanyrequests", "error sending request", "connection refused",
    "connection reset", "connection aborted", "timed out", "timeout", "could not connect", "broken pipe",
    "500 internal", "502 bad", "503 service", "504 gateway", "429 too many", "operationalerror", "servererror",
    "commitfailedexception", "commitstateunknownexception", "commit failed", "is starting up", "remotedisconnected",
)  # fmt: skip
_SECRET_NAME: Final = re.compile("secret|password|token|credential|access.key|user-?info", re.IGNORECASE)
_URL_ACCOUNT: Final = re.compile(r"(?<=://)([^/@\s:]*):([^@\s]+)@")


@dataclass(frozen=True)
class RetryPolicy:
    """Retries calls of a store or catalog, named `target` in errors, which never show `secrets`."""

    target: str
    say: Callable[[str], None] = lambda _line: None
    secrets: Iterable[str] = ()
    limit_s: float = MAX_WAIT_S
    sleep: Callable[[float], None] = time.sleep

    def call(self, do: Callable[[], T]) -> T:
        """Return the result of `do`, repeated after transient faults. Raises: ConfigError; ConnectionError."""
        waited_s, pause_s = 0.0, 1.0
        while True:
            try:
                return do()
            except storage_errors() as error:
                reason = self.describe(error)
                if advice := advice_for(reason):
                    raise ConfigError(f"{self.target}: {reason}; {advice}") from None
                if not is_transient(reason):
                    raise
                if waited_s >= self.limit_s:
                    absence = f"was away for {waited_s:,.0f} s" if waited_s else "is away"
                    raise ConnectionError(f"{self.target} {absence}: {reason}") from None
            self.say(f"{self.target} is away ({reason}); trying again in {pause_s:.0f} s")
            self.sleep(pause_s)
            waited_s, pause_s = waited_s + pause_s, min(2 * pause_s, _MAX_PAUSE_S)

    def describe(self, error: BaseException) -> str:
        """Return the type and the text of an error in one line, without secrets."""
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return mask_secrets(one_line(text), self.secrets)[:_MAX_TEXT_CHARS]


def storage_errors() -> tuple[type[Exception], ...]:
    """Return the errors of storage, catalogs and formats."""
    errors: list[type[Exception]] = [OSError]
    for module, names in _LIBRARY_ERRORS.items():
        if (loaded := sys.modules.get(module)) is not None:
            errors += [getattr(loaded, name) for name in names]
    return tuple(errors)


def advice_for(text: str) -> str | None:
    """Return advice about a permanent fault; None for others."""
    normalized = _normalize(text)
    return next((advice for kind, advice in _PERMANENT_FAULTS.items() if kind in normalized), None)


def is_transient(text: str) -> bool:
    """Whether a fault may pass by itself."""
    normalized = _normalize(text)
    return any(kind in normalized for kind in _TRANSIENT_FAULTS)


def secret_values(options: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the values of options and variables whose names mean a secret."""
    values = [value for name, value in (*options.items(), *environ.items()) if _SECRET_NAME.search(name)]
    return [value for value in values if len(value) > 3]


def mask_secrets(text: str, secrets: Iterable[str]) -> str:
    """A text with `***` for secrets and for passwords in addresses."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return _URL_ACCOUNT.sub(r"\1:***@", text)


def _normalize(text: str) -> str:
    return text.lower().replace("_", "")
