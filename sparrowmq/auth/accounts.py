"""Accounts, their permissions, and the addresses whose clients need no signature.

    accessKey, secretKey           more than 6 characters each
    admin                          may administrate; may do everything else too, unless it lists permissions
    topicPerms    orders=PUB       DENY, PUB, SUB, PUB|SUB, SUB|PUB; any other word is DENY
    groupPerms    billing=SUB      kept as permissions of the group's retry topic, %RETRY%billing
    defaultTopicPerm, defaultGroupPerm     for topics and groups that are not listed; DENY if absent
                                   not for the broker's own topics and groups, which hold messages of others
    broker                         may register at name servers, and copy a master's state (ours)
    brokerNames                    may register these brokers only; any if absent (ours)
    certificate                    the common name of a client certificate that needs no signature (ours)
    whiteRemoteAddress             addresses from which it needs no signature (`Addresses`)

Source: PlainPermissionManager, PlainAccessResource, Permission and RemoteAddressStrategyFactory, Java 4.9.7.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntFlag
from typing import Any, Final

from sparrowmq.errors import ConfigError
from sparrowmq.protocol.names import DLQ, REPLY_SUFFIX, RETRY, SYSTEM_GROUP_PREFIX, is_internal, retry_topic
from sparrowmq.protocol.signature import SigningKey
from sparrowmq.settings.setting_kinds import BOOLEAN

_EVERY_ADDRESS: Final = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})
_COMMA_OUTSIDE_BRACES: Final = re.compile(r",(?![^{]*\})")
_V4_PARTS: Final = 4
_V4_HIGHEST: Final = 255
_V6_PARTS: Final = 8
_V6_HIGHEST: Final = 0xFFFF
_MAPPED: Final = bytes(10) + b"\xff\xff"  # how a socket of both families shows an IPv4 peer
_Range = tuple[int, int]  # the lowest and the highest value
MAX_INVALID_KEY_CHARACTERS: Final = 6  # AclConstants.ACCESS_KEY_MIN_LENGTH, which Java still refuses
ACCESS_KEY: Final = "accessKey"
SECRET_KEY: Final = "secretKey"
ADDRESS: Final = "whiteRemoteAddress"
ADMIN: Final = "admin"
TOPIC_PERM: Final = "defaultTopicPerm"
GROUP_PERM: Final = "defaultGroupPerm"
TOPIC_PERMS: Final = "topicPerms"
GROUP_PERMS: Final = "groupPerms"
TEXT_KEYS: Final = (ACCESS_KEY, SECRET_KEY, ADDRESS, ADMIN, TOPIC_PERM, GROUP_PERM)
LIST_KEYS: Final = (TOPIC_PERMS, GROUP_PERMS)
BROKER: Final = "broker"
BROKER_NAMES: Final = "brokerNames"
CERTIFICATE: Final = "certificate"
KEYS: Final = (*TEXT_KEYS, *LIST_KEYS, BROKER, BROKER_NAMES, CERTIFICATE)
PORT_BYTES: Final = 4  # behind the address in a peer's host
_SYSTEM_RETRY_PREFIX: Final = retry_topic(SYSTEM_GROUP_PREFIX)  # the beginning of their retry topics


class Addresses:
    """A set of IP addresses, by patterns: the white lists of plain_acl.yml, whose clients need no signature.

        192.168.1.7                  this one               fe80::1
        192.168.1.*  192.168.*.*     a wildcard             fe80::1:*
        192.168.1-10.*               a range                fe80::1-20:*    (hexadecimal, as the address)
        192.168.1.{3,5}              a set at the end       fe80::{1,2}
        10.0.0.1,10.0.0.2            a list of all these
        *   *.*.*.*   *:*:*:*:*:*:*:*    every address, of both families

    Unlike Java, which ignores the parts after the first wildcard or range, every part of a pattern counts. Raises:
    ValueError, a pattern has none of these forms. The error names it.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._has_every_address = False
        self._alternatives: list[tuple[_Range, ...]] = []
        for pattern in patterns:
            if pattern.strip() in _EVERY_ADDRESS:
                self._has_every_address = True
            elif pattern.strip():
                self._alternatives += _alternatives(pattern)

    def __bool__(self) -> bool:
        return self._has_every_address or bool(self._alternatives)

    def has(self, packed: bytes) -> bool:
        """Whether it has an address of 4 or 16 bytes. An IPv4 address inside an IPv6 one is the IPv4 address."""
        if self._has_every_address:
            return True
        address_parts = _address_parts(packed)
        return any(
            len(parts) == len(address_parts)
            and all(low <= value <= high for (low, high), value in zip(parts, address_parts, strict=True))
            for parts in self._alternatives
        )


def _address_parts(packed: bytes) -> list[int]:
    if len(packed) == 4:
        return list(packed)
    if packed.startswith(_MAPPED):
        return list(packed[len(_MAPPED) :])
    return [int.from_bytes(packed[at : at + 2], "big") for at in range(0, len(packed), 2)]


def _alternatives(pattern: str) -> Iterator[tuple[_Range, ...]]:
    for alternative in _COMMA_OUTSIDE_BRACES.split(pattern):
        for address in _expand_set(alternative.strip()):
            try:
                yield _ranges(address)
            except ValueError:
                raise ValueError(
                    f"{address!r} is no address; write one as 192.168.1.7 or fe80::1, or a pattern as 192.168.1.*, "
                    "192.168.1-10.*, 192.168.1.{3,5}, fe80::1:*"
                ) from None


def _expand_set(address: str) -> list[str]:
    if not address.endswith("}"):
        return [address]
    head, _, choices = address[:-1].rpartition("{")
    return [head + choice.strip() for choice in choices.split(",")]


def _ranges(address: str) -> tuple[_Range, ...]:
    if ":" not in address:
        parts = address.split(".")
        if len(parts) != _V4_PARTS:
            raise ValueError(address)
        return tuple(_range(part, 10, _V4_HIGHEST) for part in parts)
    if not set(address) & set("*-"):
        address = ipaddress.IPv6Address(address).exploded
    return tuple(_range(part, 16, _V6_HIGHEST) for part in _expand_colons(address))


def _expand_colons(address: str) -> list[str]:
    head, gap, tail = address.partition("::")
    before, after = [part.split(":") if part else [] for part in (head, tail)]
    missing = _V6_PARTS - len(before) - len(after)
    if (missing < 1) if gap else missing:
        raise ValueError(address)
    return [*before, *["0"] * missing, *after]


def _range(text: str, base: int, highest: int) -> _Range:
    if text.strip() == "*":
        return 0, highest
    low, dash, high = text.partition("-")
    first = _number(low, base)
    last = _number(high, base) if dash else first
    if not first <= last <= highest:
        raise ValueError(text)
    return first, last


def _number(text: str, base: int) -> int:
    if not text.strip().isalnum() or not text.isascii():
        raise ValueError(text)
    return int(text, base)


class Perm(IntFlag):
    """Permissions on a topic, or on a group by its retry topic."""

    DENY = 0
    PUB = 1
    SUB = 2


PERMS: Final[Mapping[str, Perm]] = {
    "DENY": Perm.DENY,
    "PUB": Perm.PUB,
    "SUB": Perm.SUB,
    "PUB|SUB": Perm.PUB | Perm.SUB,
    "SUB|PUB": Perm.PUB | Perm.SUB,
}

_PUB_AND_SUB: Final = int(Perm.PUB | Perm.SUB)


@dataclass(frozen=True, slots=True)
class Account:
    """One account.

    `perms` has plain numbers by topic and retry topic, because each request reads them. `is_broker` lets it do what
    only servers of the cluster do; it may register `broker_names`, or any broker if there are none. `certificate` is
    the name in a client certificate that replaces the signature. `colleagues` are the keys of all accounts loaded
    together with it.
    """

    access_key: str
    key: SigningKey = field(repr=False)
    addresses: Addresses = field(repr=False)
    is_admin: bool
    topic_perm: int
    group_perm: int
    perms: Mapping[str, int]
    is_broker: bool = False
    certificate: str = ""
    broker_names: frozenset[str] = frozenset()
    colleagues: Container[str] = field(default=(), repr=False, compare=False)

    @property
    def is_unlimited(self) -> bool:
        return self.is_admin and not self.perms

    @property
    def may_publish(self) -> bool:
        listed = any(perm & Perm.PUB for perm in (self.topic_perm, *self.perms.values()))
        return listed or self.is_admin or bool(self.addresses)

    def may(self, resource: str, needed: int) -> bool:
        """Whether the account has a permission on a topic or a retry topic."""
        granted = self.perms.get(resource)
        if granted is None:
            if self.is_unlimited:
                return True
            granted = self._default_perm(resource)
        return granted & needed != 0

    def may_from(self, host: bytes, resource: str, needed: int) -> bool:
        """Likewise; from its own addresses it may do everything that is not for administrators."""
        return self.may(resource, needed) or bool(self.addresses and self.addresses.has(host[:-PORT_BYTES]))

    def _default_perm(self, resource: str) -> int:
        """The permission on a topic or retry topic that is not listed. Unlike Java: the broker's own topics and groups
        belong to administrators, because messages of every topic wait there. A dead-letter topic also needs the
        permission to consume as its group."""
        if resource.startswith(DLQ) and not self.may(retry_topic(resource.removeprefix(DLQ)), Perm.SUB):
            return 0
        if is_brokers_own(resource):
            return _PUB_AND_SUB if self.is_admin else 0
        return self.group_perm if resource.startswith(RETRY) else self.topic_perm


def is_brokers_own(resource: str) -> bool:
    """Whether a topic or retry topic is the broker's own. An empty name is a record of an unknown topic."""
    if resource.startswith(RETRY):
        return resource.startswith(_SYSTEM_RETRY_PREFIX)
    return is_internal(resource) or resource.endswith(REPLY_SUFFIX) or not resource


def parse_account(fields: Mapping[str, Any]) -> Account:
    """Parse the fields of a file's account: texts and lists of texts. Raises: ConfigError, a key is too short, or a
    value is invalid. The error names the account, and no secret."""
    texts = {name: text_of(fields, name) for name in TEXT_KEYS}
    access_key, secret_key = texts[ACCESS_KEY], texts[SECRET_KEY]
    account_name = f"account {access_key!r}"
    for name, value in ((ACCESS_KEY, access_key), (SECRET_KEY, secret_key)):
        if len(value) <= MAX_INVALID_KEY_CHARACTERS:
            raise ConfigError(
                f"{account_name}: its {name} has {len(value)} characters; it must have more than "
                f"{MAX_INVALID_KEY_CHARACTERS}"
            )
    try:
        addresses = Addresses([texts[ADDRESS]])
    except ValueError as error:
        raise ConfigError(f"{account_name}: {error}") from None
    topics = dict(parse_perms(fields, TOPIC_PERMS, account_name))
    groups = {retry_topic(name): perm for name, perm in parse_perms(fields, GROUP_PERMS, account_name)}
    return Account(
        access_key,
        SigningKey(secret_key),
        addresses,
        is_admin(fields),
        int(PERMS.get(texts[TOPIC_PERM], Perm.DENY)),
        int(PERMS.get(texts[GROUP_PERM], Perm.DENY)),
        groups | topics,
        _parse_flag(fields, BROKER),
        text_of(fields, CERTIFICATE),
        _broker_names(fields, account_name),
    )


def _broker_names(fields: Mapping[str, Any], account: str) -> frozenset[str]:
    names = frozenset(list_of(fields, BROKER_NAMES))
    if BROKER_NAMES in fields and not names:
        raise ConfigError(
            f"{account}: {BROKER_NAMES} has no name, and without names it may register every broker; write a name, or "
            f"leave {BROKER_NAMES} out"
        )
    return names


def parse_perms(fields: Mapping[str, Any], key: str, account: str) -> list[tuple[str, int]]:
    """The names of a list such as topicPerms, each with its permission. Raises: ConfigError."""
    parsed = []
    for line in list_of(fields, key):
        parts = [part.strip() for part in line.split("=") if part]
        if len(parts) != 2:
            raise ConfigError(f"{account}: {key} has {line!r}; write name=PERM, as in orders=PUB|SUB")
        parsed.append((parts[0], int(PERMS.get(parts[1], Perm.DENY))))
    return parsed


def is_admin(fields: Mapping[str, Any]) -> bool:
    """Raises: ConfigError, the value is no Boolean."""
    return _parse_flag(fields, ADMIN)


def _parse_flag(fields: Mapping[str, Any], key: str) -> bool:
    word = fields.get(key) or "false"
    try:
        return bool(BOOLEAN.parse(str(word)))
    except ValueError:
        raise ConfigError(f"{key} is {word!r}; it must be {BOOLEAN.allowed}") from None


def unknown_words(fields: Mapping[str, Any]) -> list[str]:
    """Permissions that are none of the five words. They count as DENY."""
    words = [text_of(fields, TOPIC_PERM), text_of(fields, GROUP_PERM)]
    words += [line.rpartition("=")[2].strip() for key in LIST_KEYS for line in list_of(fields, key)]
    return [word for word in words if word and word not in PERMS]


def text_of(fields: Mapping[str, Any], key: str) -> str:
    """A value that is one text, "" if it is absent. Raises: ConfigError."""
    value = fields.get(key) or ""
    if not isinstance(value, str):
        raise ConfigError(f"{key} is a list or a table; it must be one text")
    return value.strip()


def list_of(fields: Mapping[str, Any], key: str) -> Sequence[str]:
    """A value that is a list of texts, empty if it is absent. Raises: ConfigError."""
    value = fields.get(key) or []
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ConfigError(f"{key} must be a list of texts, a line with '- ' for each")
    return value
