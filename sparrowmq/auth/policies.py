"""The rules of ACL 2.0: which entry of a user's policies decides about an action on a resource.

    Topic:orders     literal      before
    Topic:order*     a prefix     the longest one before
    Topic:*  *       any

Entries of the CUSTOM policy decide first, those of the DEFAULT policy only if none of CUSTOM fits. Among the entries
that fit, the closest resource decides. If several are equally close, Deny wins. If no entry fits, the action is denied.

Unlike Java: of equally close entries Java sorts Deny last, so there Allow wins.
Source: AclAuthorizationHandler, PolicyEntry, Resource and Environment, Java 5.4.0.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, TypeVar

from sparrowmq.auth.addresses import MAPPED_PREFIX
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.names import RETRY

E = TypeVar("E", bound=Enum)
_ANY_WORD: Final = "*"


class Action(Enum):
    ALL = "All"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class ResourceKind(Enum):
    """The kinds of resources. ANY is only in entries: `*` fits every resource."""

    TOPIC = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"
    ANY = "*"


class PolicyKind(Enum):
    """The two policies of a user. CUSTOM is asked first."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


class Decision(Enum):
    ALLOW = "Allow"
    DENY = "Deny"


class Resource(NamedTuple):
    kind: ResourceKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.name}"


def resource_of(name: str) -> Resource:
    """The topic of a name, or the group of a retry topic."""
    return Resource(ResourceKind.GROUP if name.startswith(RETRY) else ResourceKind.TOPIC, name.removeprefix(RETRY))


class Pattern(NamedTuple):
    """The resources of an entry. An open one is a prefix, or any; `name` is the beginning of the names then."""

    kind: ResourceKind
    name: str
    is_open: bool

    def fits(self, resource: Resource) -> bool:
        if self.kind is not ResourceKind.ANY and self.kind is not resource.kind:
            return False
        return resource.name.startswith(self.name) if self.is_open else resource.name == self.name

    def __str__(self) -> str:
        if self.kind is ResourceKind.ANY:
            return _ANY_WORD
        return f"{self.kind.value}:{self.name}{_ANY_WORD if self.is_open else ''}"


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """One rule of a policy. It counts from the addresses in `networks`; if there are none, from every address."""

    pattern: Pattern
    actions: frozenset[Action]
    networks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]
    decision: Decision

    def fits(self, action: Action, resource: Resource, source: bytes) -> bool:
        """Whether the rule says something about the action, from a packed address. b"" is no address."""
        return (
            self.pattern.fits(resource)
            and (action in self.actions or Action.ALL in self.actions)
            and (not self.networks or (source != b"" and self._has(source)))
        )

    def _has(self, source: bytes) -> bool:
        """Whether the rule counts from an address. An IPv4 address inside an IPv6 one is the IPv4 address."""
        address = ipaddress.ip_address(source.removeprefix(MAPPED_PREFIX))
        return any(address in network for network in self.networks)


class Rules:
    def __init__(self, custom: Iterable[PolicyEntry] = (), default: Iterable[PolicyEntry] = ()) -> None:
        self._policies = tuple(custom), tuple(default)

    def may_allow(self, action: Action) -> bool:
        """Whether an entry allows the action on some resource, from some address."""
        return any(
            entry.decision is Decision.ALLOW and (action in entry.actions or Action.ALL in entry.actions)
            for entries in self._policies
            for entry in entries
        )

    def decision(self, action: Action, resource: Resource, source: bytes) -> Decision | None:
        """Return the decision about an action of a client at a packed address; None if no entry fits."""
        for entries in self._policies:
            fitting = [entry for entry in entries if entry.fits(action, resource, source)]
            if fitting:
                return max(fitting, key=_closeness).decision
        return None


def _closeness(entry: PolicyEntry) -> tuple[bool, int, bool]:
    """The order of entries that fit the same resource; the largest decides."""
    return not entry.pattern.is_open, len(entry.pattern.name), entry.decision is Decision.DENY


def parse_pattern(text: str) -> Pattern:
    if text == _ANY_WORD:
        return Pattern(ResourceKind.ANY, "", is_open=True)
    word, colon, name = text.partition(":")
    kind = _KINDS.get(word.lower())
    is_open = name.endswith(_ANY_WORD)
    name = name[: -len(_ANY_WORD)] if is_open else name
    if not colon or kind is None or _ANY_WORD in name or not (name or is_open):
        raise ConfigError(
            f"{text!r} is not a resource; write Topic:orders, Topic:order*, Topic:*, Group:..., Cluster:... or *"
        )
    return Pattern(kind, name, is_open)


def parse_entry(resource: str, actions: Sequence[str], source_ips: Sequence[str], decision: str) -> PolicyEntry:
    """Parse one entry, of words as in `mqadmin createAcl`. Raises: ConfigError."""
    if not actions:
        raise ConfigError(f"the entry of {resource} has no action; write one of {_list_words(Action)}")
    return PolicyEntry(
        parse_pattern(resource),
        frozenset(_parse_word(Action, text, "action") for text in actions),
        tuple(_parse_network(text) for text in source_ips),
        _parse_word(Decision, decision, "decision"),
    )


def parse_policy_kind(text: str | None) -> PolicyKind:
    """Parse the kind of a policy; CUSTOM if it is absent. Raises: ConfigError."""
    return _parse_word(PolicyKind, text, "policy type") if text else PolicyKind.CUSTOM


def _parse_network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        raise ConfigError(
            f"{text!r} is not a source address; write one as 192.168.1.7, 10.0.0.0/8, fe80::1 or fd00::/8"
        ) from None


def _parse_word(kind: type[E], text: str, kind_name: str) -> E:
    for member in kind:
        if member.value.lower() == text.strip().lower():
            return member
    raise ConfigError(f"{text!r} is not a valid {kind_name}; write one of {_list_words(kind)}")


def _list_words(kind: type[Enum]) -> str:
    return ", ".join(member.value for member in kind)


_KINDS: Final = {kind.value.lower(): kind for kind in ResourceKind if kind is not ResourceKind.ANY}
