"""The settings of users and policies (ACL 2.0): the keys of Apache's broker.conf since 5.3.

Brokers and name servers have them. Apache's name servers check no client.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from sparrowmq.errors import ConfigError
from sparrowmq.settings.setting_kinds import BOOLEAN, SECRET, Kind
from sparrowmq.settings.settings import Settings, setting

FIRST_USER: Final = "initAuthenticationUser"
INNER_CREDENTIALS: Final = "innerClientAuthenticationCredentials"
_FORM: Final = {FIRST_USER: ("username", "password"), INNER_CREDENTIALS: ("accessKey", "secretKey")}


def _codes(text: str) -> frozenset[int]:
    return frozenset(int(code) for code in text.replace(";", ",").split(",") if code.strip())


_CODES = Kind(
    _codes, "request codes with commas between, as in 105,34", lambda codes: ",".join(map(str, sorted(codes)))
)


@dataclass(frozen=True, kw_only=True)
class UserSettings(Settings):
    """Settings of users and policies."""

    authentication: bool = setting("authenticationEnabled", False, BOOLEAN)
    """Check the user and the signature of every request (ACL 2.0). Excludes aclEnable=true."""
    authorization: bool = setting("authorizationEnabled", False, BOOLEAN)
    """Check the policies of the user, too. Without it each user may do everything."""
    first_user: str | None = setting(FIRST_USER, None, SECRET, secret=True)
    """Super user that is created at a start if it does not exist, as {"username":"...","password":"..."}."""
    inner_credentials: str | None = setting(INNER_CREDENTIALS, None, SECRET, secret=True)
    """Super user of the brokers' own requests, as {"accessKey":"...","secretKey":"..."}. Created if absent."""
    migrates_accounts: bool = setting("migrateAuthFromV1Enabled", False, BOOLEAN)
    """Create users from the accounts in plain_acl.yml at a start. Users that exist stay as they are."""
    authentication_whitelist: frozenset[int] = setting("authenticationWhitelist", frozenset(), _CODES)
    """Codes of requests that need no signature. They also need authorizationWhitelist."""
    authorization_whitelist: frozenset[int] = setting("authorizationWhitelist", frozenset(), _CODES)
    """Codes of requests that need no policy."""


def check_one_kind(settings: UserSettings, acl: bool) -> None:
    """Do nothing if the settings do not contradict each other. Raises: ConfigError."""
    if acl and settings.authentication:
        raise ConfigError(
            "aclEnable=true and authenticationEnabled=true exclude each other: leave out aclEnable; "
            "migrateAuthFromV1Enabled=true makes users of the accounts in plain_acl.yml"
        )
    if settings.authorization and not settings.authentication:
        raise ConfigError(
            "authorizationEnabled=true needs authenticationEnabled=true: a name without a signature proves nothing"
        )


def named_secret(text: str, key: str) -> tuple[str, str]:
    """Parse the name and the secret of a setting. Raises: ConfigError, which shows no secret."""
    name, secret = _FORM[key]
    try:
        members = msgspec.json.decode(text, type=dict[str, str])
        return members[name], members[secret]
    except (msgspec.MsgspecError, KeyError):
        raise ConfigError(f'{key} must be a JSON object: {{"{name}":"...","{secret}":"..."}}') from None
