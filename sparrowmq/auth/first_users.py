"""The users of a server at its first start: those of the settings, and the accounts of plain_acl.yml as users.

Source: AuthMigrator, Java 5.4.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sparrowmq.auth.accounts import SECRET_KEY, policies_of, text_of
from sparrowmq.auth.users import complete_user, merge_policies
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.requests.user_headers import ENABLED, NORMAL, SUPER, Policy, UserEntry
from sparrowmq.settings.user_settings import FIRST_USER, INNER_CREDENTIALS, UserSettings, named_secret

if TYPE_CHECKING:
    from sparrowmq.auth.document import Document


def first_users(
    settings: UserSettings, home: Path | None, acl_file: Path | None
) -> Iterator[tuple[UserEntry, list[Policy]]]:
    """Yield the Super users of the settings, and the accounts of 4.x in `home` or `acl_file` if they become users, with
    their policies. Raises: ConfigError, a user is invalid."""
    for text, key in ((settings.first_user, FIRST_USER), (settings.inner_credentials, INNER_CREDENTIALS)):
        if text:
            name, password = named_secret(text, key)
            yield complete_user(UserEntry(name, password, SUPER, ENABLED)), []
    if settings.migrates_accounts:
        from sparrowmq.auth.account_files import load_account_files  # others need no YAML

        yield from users_from_accounts(load_account_files(home, acl_file).current.documents.values())


def users_from_accounts(documents: Iterable[Document]) -> Iterator[tuple[UserEntry, list[Policy]]]:
    """Yield the accounts of 4.x as users with policies. Raises: ConfigError, a user is invalid."""
    for document in documents:
        for fields, account in zip(document.accounts, document.users, strict=True):
            user_type = SUPER if account.is_admin else NORMAL
            user = UserEntry(account.access_key, text_of(fields, SECRET_KEY), user_type, ENABLED)
            yield complete_user(user), merge_policies([], policies_of(fields))


def no_users_error(or_else: str = "") -> ConfigError:
    """Return the error for a server without any user. `or_else` names another setting for users."""
    return ConfigError(
        'authenticationEnabled=true, but there is no user: set initAuthenticationUser={"username":"admin",'
        f'"password":"..."}}{or_else}'
    )
