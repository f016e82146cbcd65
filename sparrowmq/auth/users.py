"""The users of ACL 2.0, and the question that both ACLs answer: may this account do this to that, from there?

    user = User("orders-app", SigningKey(password), rules=Rules(...))
    is_allowed(user, Action.PUB, Resource(ResourceKind.TOPIC, "orders"), source)

    users.json ── principals ── name -> User                  at each change
    plain_acl.yml ── users_from_accounts ── users, policies   at a start with migrateAuthFromV1Enabled=true

A user has the same attributes as an account of plain_acl.yml, so handlers see no difference. The topics and groups of
the broker itself are for Super users, because messages of every topic wait there: no policy gives them to others.
Source: AuthMigrator, Java 5.4.0.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

from sparrowmq.auth import accounts
from sparrowmq.auth.account_files import Document, load_account_files
from sparrowmq.auth.accounts import PORT_BYTES, Account, Addresses, Perm, is_brokers_own
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
from sparrowmq.protocol.names import DLQ, TRACE_TOPIC, retry_topic
from sparrowmq.protocol.requests.user_headers import DISABLED, ENABLED, NORMAL, SUPER, Policy, PolicyRule, UserEntry
from sparrowmq.protocol.signature import SigningKey
from sparrowmq.settings.user_settings import FIRST_USER, INNER_CREDENTIALS, UserSettings, named_secret

_PERM_BY_ACTION: Final = {Action.PUB: Perm.PUB, Action.SUB: Perm.SUB, Action.GET: Perm.PUB | Perm.SUB}
log = logging.getLogger(__name__)
_NAME_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.@|%")
_MAX_NAME_CHARACTERS: Final = 255
_ACTION_WORDS_BY_PERM: Final = {Perm.PUB: ["Pub"], Perm.SUB: ["Sub"], Perm.PUB | Perm.SUB: ["Pub", "Sub"]}


@dataclass(frozen=True, slots=True)
class User:
    """One user, as a principal of requests. `access_key` is its name; `colleagues` are the names of all users. It is an
    admin if it is a Super user, and unlimited with authorizationEnabled=false."""

    access_key: str
    key: SigningKey = field(repr=False)
    is_admin: bool = False
    is_enabled: bool = True
    rules: Rules = field(default=Rules(), repr=False, compare=False)
    is_unlimited: bool = False
    colleagues: Container[str] = field(default=(), repr=False, compare=False)

    # An account of plain_acl.yml has these; a user has none of them.
    addresses: ClassVar[Addresses] = Addresses(())
    perms: ClassVar[Mapping[str, int]] = {}
    is_broker: ClassVar[bool] = False
    certificate: ClassVar[str] = ""

    @property
    def may_publish(self) -> bool:
        return self.is_enabled and (self.is_admin or self.is_unlimited or self.rules.may_allow(Action.PUB))

    def may_from(self, host: bytes, resource: str, needed: int) -> bool:
        """Whether a peer with this `host` has one of the permissions on a topic or retry topic in its name."""
        return self.may(resource, needed, host[:-PORT_BYTES])

    def may(self, resource: str, needed: int, source: bytes = b"") -> bool:
        """Whether the user has one of the permissions on a topic or retry topic, from a packed address."""
        wanted = resource_of(resource)
        return (needed & Perm.PUB != 0 and self.may_do(Action.PUB, wanted, source)) or (
            needed & Perm.SUB != 0 and self.may_do(Action.SUB, wanted, source)
        )

    def may_do(self, action: Action, resource: Resource, source: bytes) -> bool:
        """Whether the user may do this to a resource, from a packed address."""
        if not self.is_enabled:
            return False
        if self.is_admin:
            return True
        kind, name = resource
        if kind is not ResourceKind.CLUSTER and is_brokers_own(
            retry_topic(name) if kind is ResourceKind.GROUP else name
        ):
            return False
        if self.is_unlimited:
            return True
        decision = self.rules.decision(action, resource, source)
        if decision is None and (action, name) == (Action.PUB, TRACE_TOPIC):
            return True  # every user may write traces, unless an entry denies it
        if decision is not Decision.ALLOW:
            return False
        # A dead letter is a message of the group: who may not consume as the group may not read it.
        is_letter = kind is ResourceKind.TOPIC and name.startswith(DLQ)
        return not is_letter or self.may_do(Action.SUB, Resource(ResourceKind.GROUP, name.removeprefix(DLQ)), source)


def is_allowed(principal: Account | User, action: Action, resource: Resource, source: bytes) -> bool:
    """Whether an account of either ACL may do this, from a client's address, packed to 4 or 16 bytes."""
    if isinstance(principal, User):
        return principal.may_do(action, resource, source)
    kind, name = resource
    needed_perm = _PERM_BY_ACTION.get(action)
    if kind is ResourceKind.CLUSTER or needed_perm is None:
        return principal.is_admin
    host = source + bytes(PORT_BYTES)
    return principal.may_from(host, retry_topic(name) if kind is ResourceKind.GROUP else name, needed_perm)


def principals(
    users: Mapping[str, UserEntry], policies: Mapping[str, list[Policy]], *, is_unlimited: bool
) -> dict[str, User]:
    """Return all users as principals; policies do not count with `is_unlimited` (authorizationEnabled=false)."""
    return {
        name: User(
            name,
            SigningKey(user.password or ""),
            is_admin=_is_word(user.user_type, SUPER),
            # A user without a password could be named by everybody.
            is_enabled=bool(user.password) and not _is_word(user.user_status, DISABLED),
            rules=_parse_rules(name, policies.get(name, [])),
            is_unlimited=is_unlimited,
            colleagues=users,
        )
        for name, user in users.items()
    }


def check_user(user: UserEntry) -> None:
    """Raises: ConfigError, the user cannot be stored."""
    name = user.username
    if not name or len(name) > _MAX_NAME_CHARACTERS or not set(name) <= _NAME_CHARACTERS:
        raise ConfigError(
            f"the user name {shown(name)!r} is invalid: write letters, digits and _ - . @ | %, at most "
            f"{_MAX_NAME_CHARACTERS}"
        )
    if not user.password:
        raise ConfigError(f"user {name} needs a password; it is the secret key of its signatures")
    for word, known in ((user.user_type, (SUPER, NORMAL)), (user.user_status, (ENABLED, DISABLED))):
        if not any(_is_word(word, known_word) for known_word in known):
            raise ConfigError(f"{word!r} is unknown for user {name}; write one of {', '.join(known)}")


def complete_user(user: UserEntry, former: UserEntry | None = None) -> UserEntry:
    """Return a user with all members: absent ones are those of the former user, or the usual ones."""
    defaults = former or UserEntry(user_type=NORMAL, user_status=ENABLED)
    return UserEntry(
        user.username,
        user.password or defaults.password,
        _as_known_word(user.user_type or defaults.user_type, (SUPER, NORMAL)),
        _as_known_word(user.user_status or defaults.user_status, (ENABLED, DISABLED)),
    )


def merge_policies(former: Iterable[Policy], added: Iterable[Policy]) -> list[Policy]:
    """Add entries to policies. An entry of the same resource is replaced. Raises: ConfigError, an entry is invalid."""
    tables: dict[PolicyKind, dict[str, PolicyRule]] = {}
    for policy in (*former, *added):
        table = tables.setdefault(parse_policy_kind(policy.policy_type), {})
        for rule in policy.entries:
            entry = _parse_rule(rule)
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
        if only_kind is not None and parse_policy_kind(policy.policy_type) is not only_kind:
            remaining.append(policy)
        elif pattern is not None:
            rules = [rule for rule in policy.entries if rule.resource != pattern]
            remaining += [Policy(policy.policy_type, rules)] if rules else []
    return remaining


def users_from_accounts(documents: Iterable[Document]) -> Iterator[tuple[UserEntry, list[Policy]]]:
    """Yield the accounts of 4.x as users with policies. Raises: ConfigError, an account is invalid. Addresses that need
    no signature have no such form."""
    for document in documents:
        for fields in document.accounts:
            account = accounts.parse_account(fields)
            secret = accounts.text_of(fields, accounts.SECRET_KEY)
            user = UserEntry(account.access_key, secret, SUPER if account.is_admin else NORMAL, ENABLED)
            account_name = f"account {account.access_key!r}"
            topics = accounts.parse_perms(fields, accounts.TOPIC_PERMS, account_name)
            groups = accounts.parse_perms(fields, accounts.GROUP_PERMS, account_name)
            custom = [_make_rule(f"Topic:{name}", perm) for name, perm in topics]
            custom += [_make_rule(f"Group:{name}", perm) for name, perm in groups]
            # Unlike Java, without entries that deny all: what no entry allows is denied. But all users may send traces.
            defaults = (("Topic:*", account.topic_perm), ("Group:*", account.group_perm))
            default = [_make_rule(resource, perm) for resource, perm in defaults if perm]
            yield user, merge_policies([], [Policy("Custom", custom), Policy("Default", default)])


def _make_rule(resource: str, perm: int) -> PolicyRule:
    if not perm:
        return PolicyRule(resource, ["All"], None, "Deny")
    return PolicyRule(resource, _ACTION_WORDS_BY_PERM[Perm(perm)], None, "Allow")


def _parse_rules(name: str, policies: Iterable[Policy]) -> Rules:
    """The rules of a user. Broken ones, which only a change by hand can bring, count as none: all is denied."""
    rules_of_kind: dict[PolicyKind, list[PolicyEntry]] = {kind: [] for kind in PolicyKind}
    try:
        for policy in policies:
            rules_of_kind[parse_policy_kind(policy.policy_type)] += map(_parse_rule, policy.entries)
    except ConfigError as error:
        log.error("user %s may do nothing until its policies are fixed: %s", shown(name), error)
        return Rules()
    return Rules(rules_of_kind[PolicyKind.CUSTOM], rules_of_kind[PolicyKind.DEFAULT])


def _parse_rule(rule: PolicyRule) -> PolicyEntry:
    return parse_entry(rule.resource, rule.actions, rule.source_ips or [], rule.decision)


def _is_word(text: str | None, word: str) -> bool:
    return (text or "").lower() == word.lower()


def _as_known_word(text: str | None, words: Iterable[str]) -> str | None:
    return next((word for word in words if _is_word(text, word)), text)


def first_users(
    settings: UserSettings, home: Path | None, acl_file: Path | None
) -> Iterator[tuple[UserEntry, list[Policy]]]:
    """Yield the Super users of the settings, and the accounts of 4.x in `home` or `acl_file` if they become users, with
    their policies. Raises: ConfigError, a user is invalid."""
    for text, key in ((settings.first_user, FIRST_USER), (settings.inner_credentials, INNER_CREDENTIALS)):
        if text:
            name, password = named_secret(text, key)
            yield _checked_user(UserEntry(name, password, SUPER, ENABLED)), []
    if settings.migrates_accounts:
        for user, policies in users_from_accounts(load_account_files(home, acl_file).current.documents.values()):
            yield _checked_user(user), policies


def no_users_error(or_else: str = "") -> ConfigError:
    """Return the error for a server without any user. `or_else` names another setting for users."""
    return ConfigError(
        'authenticationEnabled=true, but there is no user: set initAuthenticationUser={"username":"admin",'
        f'"password":"..."}}{or_else}'
    )


def _checked_user(user: UserEntry) -> UserEntry:
    completed = complete_user(user)
    check_user(completed)
    return completed
