"""Principals from stored users and policies, and users from the accounts of 4.x.

    users.json ── principals ── name -> User        at each change
    plain_acl.yml ── migrated ── users, policies    at a start with migrateAuthFromV1Enabled=true

Source: AuthMigrator, Java 5.4.0.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from sparrowmq.auth import accounts
from sparrowmq.auth.accounts import Perm
from sparrowmq.auth.document import Document
from sparrowmq.auth.policies import (
    Action,
    Entry,
    PolicyKind,
    Rules,
    parse_entry,
    parse_pattern,
    parse_policy_kind,
)
from sparrowmq.auth.users import User
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.requests.user_headers import (
    DISABLED,
    ENABLED,
    NORMAL,
    SUPER,
    Policy,
    PolicyRule,
    UserEntry,
)
from sparrowmq.protocol.signature import SigningKey

log = logging.getLogger(__name__)

_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.@|%")
_LONGEST: Final = 255
_ACTIONS: Final = {Perm.PUB: ["Pub"], Perm.SUB: ["Sub"], Perm.PUB | Perm.SUB: ["Pub", "Sub"]}


def principals(
    users: Mapping[str, UserEntry], policies: Mapping[str, list[Policy]], *, is_unlimited: bool
) -> dict[str, User]:
    """Return all users as principals.

    Args:
        is_unlimited: whether policies do not count (authorizationEnabled=false).
    """
    return {
        name: User(
            name,
            SigningKey(user.password or ""),
            is_admin=_is(user.user_type, SUPER),
            # A user without a password could be named by everybody.
            is_enabled=bool(user.password) and not _is(user.user_status, DISABLED),
            rules=_rules(name, policies.get(name, [])),
            is_unlimited=is_unlimited,
            colleagues=users,
        )
        for name, user in users.items()
    }


def check_user(user: UserEntry) -> None:
    """Raises: ConfigError, the user cannot be stored."""
    name = user.username
    if not name or len(name) > _LONGEST or not set(name) <= _LETTERS:
        raise ConfigError(
            f"the user name {shown(name)!r} is invalid: write letters, digits and _ - . @ | %, at most {_LONGEST}"
        )
    if not user.password:
        raise ConfigError(f"user {name} needs a password; it is the secret key of its signatures")
    for word, known in ((user.user_type, (SUPER, NORMAL)), (user.user_status, (ENABLED, DISABLED))):
        if not any(_is(word, each) for each in known):
            raise ConfigError(f"{word!r} is unknown for user {name}; write one of {', '.join(known)}")


def completed(user: UserEntry, former: UserEntry | None = None) -> UserEntry:
    """Return a user with all members: absent ones are those of the former user, or the usual ones."""
    held = former or UserEntry(user_type=NORMAL, user_status=ENABLED)
    return UserEntry(
        user.username,
        user.password or held.password,
        _spelt(user.user_type or held.user_type, (SUPER, NORMAL)),
        _spelt(user.user_status or held.user_status, (ENABLED, DISABLED)),
    )


def merged(former: Iterable[Policy], added: Iterable[Policy]) -> list[Policy]:
    """Add entries to policies. An entry of the same resource is replaced.

    Raises:
        ConfigError: an entry is invalid.
    """
    tables: dict[PolicyKind, dict[str, PolicyRule]] = {}
    for policy in (*former, *added):
        table = tables.setdefault(parse_policy_kind(policy.policy_type), {})
        for rule in policy.entries:
            entry = _entry(rule)
            table[str(entry.pattern)] = PolicyRule(
                str(entry.pattern),
                [action.value for action in Action if action in entry.actions],
                [text.strip() for text in rule.source_ips or []] or None,
                entry.decision.value,
            )
    return [Policy(kind.value, list(tables[kind].values())) for kind in PolicyKind if tables.get(kind)]


def without(policies: Iterable[Policy], kind: str | None, resource: str | None) -> list[Policy]:
    """Remove the policies of a kind, or of both, or only their entry of a resource.

    Raises:
        ConfigError: there is no such kind, or the resource is invalid.
    """
    only = parse_policy_kind(kind) if kind else None
    pattern = str(parse_pattern(resource)) if resource else None
    kept = []
    for policy in policies:
        if only is not None and parse_policy_kind(policy.policy_type) is not only:
            kept.append(policy)
        elif pattern is not None:
            rules = [rule for rule in policy.entries if rule.resource != pattern]
            kept += [Policy(policy.policy_type, rules)] if rules else []
    return kept


def migrated(documents: Iterable[Document]) -> Iterator[tuple[UserEntry, list[Policy]]]:
    """Yield the accounts of 4.x as users with policies. Addresses that need no signature have no such form.

    Raises:
        ConfigError: an account is invalid.
    """
    for document in documents:
        for fields in document.accounts:
            account = accounts.parse_account(fields)
            secret = accounts.text_of(fields, accounts.SECRET_KEY)
            user = UserEntry(account.access_key, secret, SUPER if account.is_admin else NORMAL, ENABLED)
            who = f"account {account.access_key!r}"
            custom = [
                _rule(f"Topic:{name}", perm) for name, perm in accounts.parse_perms(fields, accounts.TOPIC_PERMS, who)
            ]
            custom += [
                _rule(f"Group:{name}", perm) for name, perm in accounts.parse_perms(fields, accounts.GROUP_PERMS, who)
            ]
            # Unlike Java, without entries that deny all: what no entry allows is denied. But all users may send traces.
            defaults = (("Topic:*", account.topic_perm), ("Group:*", account.group_perm))
            default = [_rule(resource, perm) for resource, perm in defaults if perm]
            yield user, merged([], [Policy("Custom", custom), Policy("Default", default)])


def _rule(resource: str, perm: int) -> PolicyRule:
    if not perm:
        return PolicyRule(resource, ["All"], None, "Deny")
    return PolicyRule(resource, _ACTIONS[Perm(perm)], None, "Allow")


def _rules(name: str, policies: Iterable[Policy]) -> Rules:
    """The rules of a user. Broken ones, which only a change by hand can bring, count as none: all is denied."""
    found: dict[PolicyKind, list[Entry]] = {kind: [] for kind in PolicyKind}
    try:
        for policy in policies:
            found[parse_policy_kind(policy.policy_type)] += map(_entry, policy.entries)
    except ConfigError as error:
        log.error("user %s may do nothing until its policies are fixed: %s", shown(name), error)
        return Rules()
    return Rules(found[PolicyKind.CUSTOM], found[PolicyKind.DEFAULT])


def _entry(rule: PolicyRule) -> Entry:
    return parse_entry(rule.resource, rule.actions, rule.source_ips or [], rule.decision)


def _is(text: str | None, word: str) -> bool:
    return (text or "").lower() == word.lower()


def _spelt(text: str | None, words: Iterable[str]) -> str | None:
    return next((word for word in words if _is(text, word)), text)
