"""The users of a server, and the question that all access control asks: may this user do this to that, from there?

    user = User("orders-app", SigningKey(password), rules=Rules(...))
    user.may("orders", PUB, source)
    user.may_do(Action.UPDATE, Resource(ResourceKind.CLUSTER, "main"), source)

    users.json ────── principals ──────────────┐
                                               ├── name -> User, other objects after each change
    plain_acl.yml ─── accounts.parse_account ──┘

Users with policies (ACL 2.0) and accounts of 4.x are the same to handlers. For an account its usual permissions become
rules. The permissions that it lists by name stay apart, because they count also for topics of the broker itself, which
no policy gives to others than Super users.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sparrowmq.auth.addresses import PORT_BYTES, Addresses
from sparrowmq.auth.policies import (
    Action,
    Decision,
    PolicyEntry,
    PolicyKind,
    Resource,
    ResourceKind,
    Rules,
    parse_entry,
    parse_pattern,
    parse_policy_kind,
    resource_of,
)
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.names import (
    DLQ,
    MAX_TOPIC_LENGTH,
    REPLY_SUFFIX,
    RETRY,
    SYSTEM_GROUP_PREFIX,
    TRACE_TOPIC,
    is_internal,
    retry_topic,
)
from sparrowmq.protocol.requests.user_headers import DISABLED, ENABLED, NORMAL, SUPER, Policy, PolicyRule, UserEntry
from sparrowmq.protocol.signature import SigningKey

log = logging.getLogger(__name__)
# Permissions on a topic, or on a group by its retry topic.
PUB: Final = 1
SUB: Final = 2
ACTION_BY_PERM: Final = {PUB: Action.PUB, SUB: Action.SUB}
_SYSTEM_RETRY_PREFIX: Final = retry_topic(SYSTEM_GROUP_PREFIX)  # the beginning of the broker's own retry topics
_MAX_DECISIONS: Final = 1000  # of a user, which may ask for any names
_NAME_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.@|%")
_MAX_NAME_CHARACTERS: Final = 255
_KNOWN_WORDS: Final = {word.lower(): word for word in (SUPER, NORMAL, ENABLED, DISABLED)}


@dataclass(frozen=True, slots=True, eq=False)
class User:
    """One user, or one account of plain_acl.yml, as a principal of requests.

    `access_key` is its name; `colleagues` are the names of all users. `is_admin`: it may administrate. Only accounts
    have the other fields. `perms` are those of topics and retry topics that count before the rules, also for the topics
    of the broker itself. From its `addresses` an account needs no signature, and no permission. `is_broker` lets it do
    what only servers of the cluster do; it may register `broker_names`, or any broker if there are none. `certificate`
    is the name in a client certificate that replaces the signature.
    """

    access_key: str
    key: SigningKey = field(repr=False)
    is_admin: bool = False
    is_enabled: bool = True
    rules: Rules = field(default=Rules(), repr=False)
    perms: Mapping[str, int] = field(default_factory=dict)
    addresses: Addresses = field(default=Addresses(()), repr=False)
    is_broker: bool = False
    broker_names: frozenset[str] = frozenset()
    certificate: str = ""
    colleagues: Container[str] = field(default=(), repr=False)
    # Of `may`. After each change of users there is another object.
    _decisions: dict[tuple[str, int, bytes], bool] = field(default_factory=dict, init=False, repr=False)

    @property
    def may_publish(self) -> bool:
        is_listed = any(perm & PUB for perm in self.perms.values())
        return self.is_enabled and (
            self.is_admin or is_listed or bool(self.addresses) or self.rules.may_allow(Action.PUB)
        )

    def may_from(self, host: bytes, resource: str, needed: int) -> bool:
        """Whether a peer with this `host` has one of the permissions on a topic or retry topic in its name."""
        return self.may(resource, needed, host[:-PORT_BYTES])

    def may(self, resource: str, needed: int, source: bytes = b"") -> bool:
        """Whether the user has one of the permissions on a topic or retry topic, from a packed address."""
        key = resource, needed, source
        is_allowed = self._decisions.get(key)
        if is_allowed is None:
            is_allowed = self._decide(resource, needed, source)
            if len(self._decisions) >= _MAX_DECISIONS:
                self._decisions.clear()
            if len(resource) <= MAX_TOPIC_LENGTH:
                self._decisions[key] = is_allowed
        return is_allowed

    def _decide(self, resource: str, needed: int, source: bytes) -> bool:
        if self.addresses.has(source):
            return True
        if resource in self.perms:
            return self.perms[resource] & needed != 0
        wanted = resource_of(resource)
        return any(needed & perm and self.may_do(action, wanted, source) for perm, action in ACTION_BY_PERM.items())

    def may_do(self, action: Action, resource: Resource, source: bytes) -> bool:
        """Whether the rules let the user do this to a resource, from a packed address. The topics and groups of the
        broker itself are for administrators, because messages of every topic wait there."""
        if not self.is_enabled:
            return False
        if self.is_admin and not self.perms:
            return True
        kind, name = resource
        if kind is not ResourceKind.CLUSTER and is_brokers_own(
            retry_topic(name) if kind is ResourceKind.GROUP else name
        ):
            return self.is_admin
        decision = self.rules.decision(action, resource, source)
        if decision is None and (action, name) == (Action.PUB, TRACE_TOPIC):
            return True  # every user may write traces, unless an entry denies it
        if decision is not Decision.ALLOW:
            return False
        # A dead letter is a message of the group: who may not consume as the group may not read it.
        is_letter = kind is ResourceKind.TOPIC and name.startswith(DLQ)
        return not is_letter or self.may(retry_topic(name.removeprefix(DLQ)), SUB, source)


def is_brokers_own(resource: str) -> bool:
    """Whether a topic or retry topic is the broker's own. An empty name is a record of an unknown topic."""
    if resource.startswith(RETRY):
        return resource.startswith(_SYSTEM_RETRY_PREFIX)
    return is_internal(resource) or resource.endswith(REPLY_SUFFIX) or not resource


def principals(
    users: Mapping[str, UserEntry], policies: Mapping[str, list[Policy]], *, is_unlimited: bool
) -> dict[str, User]:
    """Return all users as principals; policies do not count with `is_unlimited` (authorizationEnabled=false)."""
    return {
        name: User(
            name,
            SigningKey(user.password or ""),
            is_admin=_known_word(user.user_type) == SUPER,
            # A user without a password could be named by everybody.
            is_enabled=bool(user.password) and _known_word(user.user_status) != DISABLED,
            rules=_EVERYTHING if is_unlimited else _parse_rules(name, policies.get(name, [])),
            colleagues=users,
        )
        for name, user in users.items()
    }


def complete_user(user: UserEntry, former: UserEntry | None = None) -> UserEntry:
    """Return a user with all members: absent ones are those of the former user, or the usual ones. Raises: ConfigError,
    the user cannot be stored."""
    defaults = former or UserEntry(user_type=NORMAL, user_status=ENABLED)
    name, password = user.username, user.password or defaults.password
    user_type = _known_word(user.user_type or defaults.user_type)
    user_status = _known_word(user.user_status or defaults.user_status)
    if not name or len(name) > _MAX_NAME_CHARACTERS or not set(name) <= _NAME_CHARACTERS:
        raise ConfigError(
            f"the user name {shown(name)!r} is invalid: write letters, digits and _ - . @ | %, at most "
            f"{_MAX_NAME_CHARACTERS}"
        )
    if not password:
        raise ConfigError(f"user {name} needs a password; it is the secret key of its signatures")
    for word, known in ((user_type, (SUPER, NORMAL)), (user_status, (ENABLED, DISABLED))):
        if word not in known:
            raise ConfigError(f"{word!r} is unknown for user {name}; write one of {', '.join(known)}")
    return UserEntry(name, password, user_type, user_status)


def merge_policies(former: Iterable[Policy], added: Iterable[Policy]) -> list[Policy]:
    """Add entries to policies. An entry of the same resource is replaced. Raises: ConfigError, an entry is invalid."""
    tables: dict[PolicyKind, dict[str, PolicyRule]] = {}
    for policy in (*former, *added):
        table = tables.setdefault(parse_policy_kind(policy.policy_type), {})
        for rule in policy.entries:
            entry = parse_rule(rule)
            table[str(entry.pattern)] = PolicyRule(
                str(entry.pattern),
                [action.value for action in Action if action in entry.actions],
                [text.strip() for text in rule.source_ips or []] or None,
                entry.decision.value,
            )
    return [Policy(kind.value, list(tables[kind].values())) for kind in PolicyKind if tables.get(kind)]


def remove_policies(policies: Iterable[Policy], kind: str | None, resource: str | None) -> list[Policy]:
    """Remove the policies of a kind, or of both, or only their entry of a resource. Raises: ConfigError."""
    only_kind = parse_policy_kind(kind) if kind else None
    pattern = str(parse_pattern(resource)) if resource else None
    remaining = []
    for policy in policies:
        is_other_kind = only_kind is not None and parse_policy_kind(policy.policy_type) is not only_kind
        rules = [rule for rule in policy.entries if is_other_kind or pattern not in (None, rule.resource)]
        remaining += [Policy(policy.policy_type, rules)] if rules else []
    return remaining


def _parse_rules(name: str, policies: Iterable[Policy]) -> Rules:
    """The rules of a user. Broken ones, which only a change by hand can bring, count as none: all is denied."""
    rules_of_kind: dict[PolicyKind, list[PolicyEntry]] = {kind: [] for kind in PolicyKind}
    try:
        for policy in policies:
            rules_of_kind[parse_policy_kind(policy.policy_type)] += map(parse_rule, policy.entries)
    except ConfigError as error:
        log.error("user %s may do nothing until its policies are fixed: %s", shown(name), error)
        return Rules()
    return Rules(rules_of_kind[PolicyKind.CUSTOM], rules_of_kind[PolicyKind.DEFAULT])


def parse_rule(rule: PolicyRule) -> PolicyEntry:
    return parse_entry(rule.resource, rule.actions, rule.source_ips or [], rule.decision)


def _known_word(text: str | None) -> str | None:
    return _KNOWN_WORDS.get((text or "").lower(), text)


_EVERYTHING: Final = Rules([parse_entry("*", ["All"], [], "Allow")])
