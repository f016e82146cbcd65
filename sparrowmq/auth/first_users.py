"""The users that exist before an administrator creates others: those that the settings name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sparrowmq.auth.account_files import account_files
from sparrowmq.auth.user_directory import check_user, completed, migrated
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.requests.user_headers import ENABLED, SUPER, Policy, UserEntry
from sparrowmq.settings.user_settings import FIRST_USER, INNER_CREDENTIALS, UserSettings, named_secret


def first_users(
    settings: UserSettings, home: Path | None, acl_file: Path | None
) -> Iterator[tuple[UserEntry, list[Policy]]]:
    """Yield the Super users of the settings, and the accounts of 4.x if they become users, with their policies.

    Args:
        home, acl_file: where the accounts of 4.x are.
    Raises:
        ConfigError: a user is invalid.
    """
    named = ((settings.first_user, FIRST_USER), (settings.inner_credentials, INNER_CREDENTIALS))
    for text, key in named:
        if text:
            name, password = named_secret(text, key)
            yield _whole(UserEntry(name, password, SUPER, ENABLED)), []
    if settings.migrates_accounts:
        for user, policies in migrated(account_files(home, acl_file).now.documents.values()):
            yield _whole(user), policies


def no_users(or_else: str = "") -> ConfigError:
    """Return the error for a server without any user. `or_else` names another setting for users."""
    return ConfigError(
        'authenticationEnabled=true, but there is no user: set initAuthenticationUser={"username":"admin",'
        f'"password":"..."}}{or_else}'
    )


def _whole(user: UserEntry) -> UserEntry:
    whole = completed(user)
    check_user(whole)
    return whole
