"""An account of plain_acl.yml as a user.

    accessKey, secretKey           more than 6 characters each
    admin                          may administrate; may do everything else too, unless it lists permissions
    topicPerms    orders=PUB       DENY, PUB, SUB, PUB|SUB, SUB|PUB; any other word is DENY
    groupPerms    billing=SUB      kept as permissions of the group's retry topic, %RETRY%billing
    defaultTopicPerm, defaultGroupPerm     for topics and groups that are not listed; DENY if absent
                                   not for the broker's own topics and groups, which hold messages of others
    broker                         may register at name servers, and copy a master's state (ours)
    brokerNames                    may register these brokers only; any if absent (ours)
    certificate                    the common name of a client certificate that needs no signature (ours)
    whiteRemoteAddress             addresses from which it needs no signature (addresses.py)

Source: PlainPermissionManager, PlainAccessResource and Permission, Java 4.9.7.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sparrowmq.auth.addresses import Addresses
from sparrowmq.auth.policies import PolicyKind, Rules
from sparrowmq.auth.users import ACTION_BY_PERM, PUB, SUB, User, parse_rule
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.names import TRACE_TOPIC, retry_topic
from sparrowmq.protocol.requests.user_headers import Policy, PolicyRule
from sparrowmq.protocol.signature import SigningKey
from sparrowmq.settings.setting_kinds import BOOLEAN

MAX_INVALID_KEY_CHARACTERS: Final = 6  # AclConstants.ACCESS_KEY_MIN_LENGTH, which Java still refuses
ACCESS_KEY: Final = "accessKey"
SECRET_KEY: Final = "secretKey"
ADDRESS: Final = "whiteRemoteAddress"
ADMIN: Final = "admin"
TOPIC_PERM: Final = "defaultTopicPerm"
GROUP_PERM: Final = "defaultGroupPerm"
TOPIC_PERMS: Final = "topicPerms"
GROUP_PERMS: Final = "groupPerms"
BROKER: Final = "broker"
BROKER_NAMES: Final = "brokerNames"
CERTIFICATE: Final = "certificate"
_USUAL_KEYS: Final = {"Topic:*": TOPIC_PERM, "Group:*": GROUP_PERM}
_LIST_KEYS: Final = (TOPIC_PERMS, GROUP_PERMS)
_OTHER_KEYS: Final = (ACCESS_KEY, SECRET_KEY, ADDRESS, ADMIN, BROKER, BROKER_NAMES, CERTIFICATE)
KEYS: Final = frozenset({*_USUAL_KEYS.values(), *_LIST_KEYS, *_OTHER_KEYS})
PERMS: Final = {"DENY": 0, "PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB}


def parse_account(fields: Mapping[str, Any]) -> User:
    """Parse the fields of a file's account: texts and lists of texts. Raises: ConfigError, a key is too short, or a
    value is invalid. The error names the account, and no secret."""
    access_key = text_of(fields, ACCESS_KEY)
    try:
        for name in (ACCESS_KEY, SECRET_KEY):
            length = len(text_of(fields, name))
            if length <= MAX_INVALID_KEY_CHARACTERS:
                raise ConfigError(
                    f"its {name} has {length} characters; it must have more than {MAX_INVALID_KEY_CHARACTERS}"
                )
        perms = {retry_topic(name): perm for name, perm in _perms(fields, GROUP_PERMS)}
        perms |= dict(_perms(fields, TOPIC_PERMS))
        if TRACE_TOPIC in perms:
            perms[TRACE_TOPIC] |= PUB  # every account may write traces
        return User(
            access_key,
            SigningKey(text_of(fields, SECRET_KEY)),
            is_admin=parse_flag(fields, ADMIN),
            rules=Rules(default=map(parse_rule, usual_rules(fields))),
            perms=perms,
            addresses=Addresses([text_of(fields, ADDRESS)]),
            is_broker=parse_flag(fields, BROKER),
            broker_names=_broker_names(fields),
            certificate=text_of(fields, CERTIFICATE),
        )
    except (ConfigError, ValueError) as error:
        raise ConfigError(f"account {access_key!r}: {error}") from None


def policies_of(fields: Mapping[str, Any]) -> list[Policy]:
    """Return the permissions of an account as policies of a user. Addresses have no such form."""
    rules = [_rule(f"Topic:{name}", perm) for name, perm in _perms(fields, TOPIC_PERMS)]
    rules += [_rule(f"Group:{name}", perm) for name, perm in _perms(fields, GROUP_PERMS)]
    return [Policy(PolicyKind.CUSTOM.value, rules), Policy(PolicyKind.DEFAULT.value, usual_rules(fields))]


def usual_rules(fields: Mapping[str, Any]) -> list[PolicyRule]:
    """Return the rules of topics and groups that are not listed. What no rule allows is denied, except traces."""
    perms = [(resource, PERMS.get(text_of(fields, key), 0)) for resource, key in _USUAL_KEYS.items()]
    return [_rule(resource, perm) for resource, perm in perms if perm]


def _rule(resource: str, perm: int) -> PolicyRule:
    actions = [action.value for bit, action in ACTION_BY_PERM.items() if perm & bit]
    return PolicyRule(resource, actions or ["All"], None, "Allow" if actions else "Deny")


def _broker_names(fields: Mapping[str, Any]) -> frozenset[str]:
    names = frozenset(list_of(fields, BROKER_NAMES))
    if BROKER_NAMES in fields and not names:
        raise ConfigError(
            f"{BROKER_NAMES} has no name, and without names it may register every broker; write a name, or leave "
            f"{BROKER_NAMES} out"
        )
    return names


def _perms(fields: Mapping[str, Any], key: str) -> list[tuple[str, int]]:
    """The names of a list such as topicPerms, each with its permission."""
    parsed = []
    for line in list_of(fields, key):
        parts = [part.strip() for part in line.split("=") if part]
        if len(parts) != 2:
            raise ConfigError(f"{key} has {line!r}; write name=PERM, as in orders=PUB|SUB")
        parsed.append((parts[0], PERMS.get(parts[1], 0)))
    return parsed


def parse_flag(fields: Mapping[str, Any], key: str) -> bool:
    """Raises: ConfigError, the value is no Boolean."""
    word = fields.get(key) or "false"
    try:
        return bool(BOOLEAN.parse(str(word)))
    except ValueError:
        raise ConfigError(f"{key} is {word!r}; it must be {BOOLEAN.allowed}") from None


def unknown_words(fields: Mapping[str, Any]) -> list[str]:
    """Permissions that are none of the five words. They count as DENY."""
    words = [text_of(fields, key) for key in _USUAL_KEYS.values()]
    words += [line.rpartition("=")[2].strip() for key in _LIST_KEYS for line in list_of(fields, key)]
    return [word for word in words if word and word not in PERMS]


def text_of(fields: Mapping[str, Any], key: str) -> str:
    """A value that is one text, "" if it is absent. Raises: ConfigError."""
    value = fields.get(key) or ""
    if not isinstance(value, str):
        raise ConfigError(f"{key} is a list or a table; it must be one text")
    return value.strip()


def list_of(fields: Mapping[str, Any], key: str) -> list[str]:
    """A value that is a list of texts, empty if it is absent. Raises: ConfigError."""
    value = fields.get(key) or []
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ConfigError(f"{key} must be a list of texts, a line with '- ' for each")
    return list(map(str, value))
