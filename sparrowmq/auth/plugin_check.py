"""Plugged-in checks: access control by your own class, for example with a directory or a database.

    # mine.py
    class OfficeHours:
        def __init__(self, settings: Mapping[str, str]) -> None: ...
        def check(self, request: AccessRequest) -> None:
            if request.access == "write" and not 8 <= datetime.now().hour < 18:
                raise AccessDenied(f"no writes to {request.topics} at night")

    aclCheck=mine:OfficeHours        or the name of an entry point of the group `sparrowmq.access`
    aclCheck=plain;mine:OfficeHours  both must agree; `plain` are the accounts in files, and all there is by default

The broker calls `check` in its event loop for each request, so `check` must not wait: it should fetch remote data in a
thread of its own. Any exception denies the request. (Java: AccessValidator, found by META-INF/service.)
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from sparrowmq.auth import permissions
from sparrowmq.auth.permissions import Peer, TopicAt
from sparrowmq.errors import AccessDenied, ConfigError, DenialKind
from sparrowmq.protocol.names import RETRY
from sparrowmq.protocol.requests.request_table import Row
from sparrowmq.protocol.signature import ACCESS_KEY, SigningKey
from sparrowmq.protocol.wire.command import Command
from sparrowmq.protocol.wire.header import Request

PLAIN: Final = "plain"
ENTRY_POINTS: Final = "sparrowmq.access"
_PERM_WORDS: Final = {permissions.PUB: "PUB", permissions.SUB: "SUB", permissions.PUB | permissions.SUB: "PUB|SUB"}


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """A request, as a check sees it.

    `code` and `name` are such as 310 and SEND_MESSAGE_V2. `access` is that of the request table: read, write, client,
    admin or cluster. `address` is `host:port`. `topics` and `groups` are those of the request, each with PUB or SUB;
    with PUB|SUB if one of them is enough. `fields` is the header as it arrived, with AccessKey and Signature if it is
    signed. `certificate` is the common name in the peer's verified certificate.
    """

    code: int
    name: str
    access: str
    address: str
    topics: Mapping[str, str]
    groups: Mapping[str, str]
    fields: Mapping[str, str]
    _body: bytes = field(repr=False)
    certificate: str | None = None

    @property
    def access_key(self) -> str | None:
        return self.fields.get(ACCESS_KEY)

    def is_signed_with(self, secret_key: str) -> bool:
        """Whether the sender has the secret key, and the request is unchanged."""
        return SigningKey(secret_key).has_signed(self.fields, self._body)


class AccessCheck(Protocol):
    """A plugged-in class. Its constructor takes the broker's settings, by their keys."""

    def check(self, request: AccessRequest) -> None:
        """Do nothing if the request is allowed. Raises: AccessDenied, or any other exception."""


class PluggedCheck:
    """Passes each request to a plugged-in check."""

    def __init__(self, check: AccessCheck, topic_at: TopicAt) -> None:
        self._check = check
        self._topic_at = topic_at

    def __call__(self, peer: Peer, command: Command, row: Row, header: Request[Any]) -> None:
        topics: dict[str, str] = {}
        groups: dict[str, str] = {}
        for resource, needed in permissions.needs(row, header, command.body, self._topic_at):
            is_group = resource.startswith(RETRY)
            (groups if is_group else topics)[resource.removeprefix(RETRY)] = _PERM_WORDS[needed]
        request = AccessRequest(
            code=int(row.code),
            name=row.name,
            access=row.access.value,
            address=peer.address,
            topics=topics,
            groups=groups,
            fields=command.ext_fields(),
            _body=command.body,
            certificate=peer.certificate,
        )
        try:
            self._check.check(request)
        except AccessDenied as error:
            error.of_kind(DenialKind.PLUGGED_CHECK)
            raise


def plugged_check(name: str, settings: Mapping[str, str]) -> AccessCheck:
    """Create the check with a name: `module:Class`, or the name of an entry point.

    Raises: ConfigError, it does not exist, or has no method `check`.
    """
    check_class = _from_module(name) if ":" in name else _from_entry_point(name)
    check = check_class(settings)
    if not callable(getattr(check, "check", None)):
        raise ConfigError(
            f"aclCheck = {name!r}: it has no method check(request); sparrowmq/auth/plugin_check.py shows one"
        )
    return check  # type: ignore[no-any-return]


def _from_module(name: str) -> Any:
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"aclCheck = {name!r} cannot be loaded ({error}); write module:Class") from error


def _from_entry_point(name: str) -> Any:
    # Imported here: it takes 1.5 MB, which a broker without such a check saves.
    from importlib.metadata import entry_points

    points = entry_points(group=ENTRY_POINTS)
    if name not in points.names:
        known_names = ", ".join([PLAIN, *sorted(points.names)])
        raise ConfigError(f"aclCheck = {name!r} is none of {known_names}; write one of them, or module:Class")
    try:
        return points[name].load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"aclCheck = {name!r} cannot be loaded ({error})") from error
