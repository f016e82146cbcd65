"""The users of a name server (ACL 2.0): those of a file, and those that the settings name.

The file has the form of a broker's `config/users.json`. It is that of a broker on the same machine, or a copy. A change
takes effect at the second look that finds the same file, because a copy may be half written. A broken file stops a
start; later it changes nothing, and is reported once. A broker that has never run has no file yet. Until the file is
there, the users of the settings count.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from sparrowmq.auth.first_users import first_users, no_users
from sparrowmq.auth.user_directory import principals
from sparrowmq.auth.users import User
from sparrowmq.errors import ConfigError, RemoteProtocolError
from sparrowmq.namesrv.namesrv_settings import NamesrvSettings
from sparrowmq.protocol.requests.user_bodies import UserTable
from sparrowmq.settings.changed_files import ChangedFiles

log = logging.getLogger(__name__)


class NamesrvUsers:
    """The users as they are now.

    Attributes:
        by_name: another object after each change.
        problem: why a change of the file does not take effect; "" if it does.
    Raises:
        ConfigError: the file cannot be read, a user of the settings is invalid, or there is no user at all.
    """

    def __init__(self, settings: NamesrvSettings) -> None:
        self._path = settings.users_file
        self._is_unlimited = not settings.authorization
        self._named = list(first_users(settings, settings.home, settings.acl_file))
        self._changed = ChangedFiles(lambda: [self._path] if self._path is not None else [])
        self.problem = ""
        self.by_name = self._principals(self._first_table())
        if not self.by_name:
            raise no_users(", or usersFile to the users of a broker")

    def look(self) -> None:
        """Load a change that was the same at two looks."""
        if self._path is None or not self._changed.look():
            return
        try:
            self.by_name = self._principals(_table(self._path))
        except ConfigError as error:
            self.problem = f"the users do not change: {error}"
            log.error("the users do not change until this is fixed: %s", error)
        else:
            self.problem = ""
            log.info("%d users are in effect", len(self.by_name))

    def _first_table(self) -> UserTable:
        if self._path is None:
            return UserTable()
        if self._named and not self._path.exists():
            self.problem = (
                f"usersFile {self._path} does not exist yet, so only the users of the settings count"
            )
            log.warning("%s", self.problem)
            return UserTable()
        return _table(self._path)

    def _principals(self, table: UserTable) -> Mapping[str, User]:
        """All users. Those of the file count before those of the settings."""
        named = {user.username: (user, policies) for user, policies in reversed(self._named)}
        users = {name: user for name, (user, _) in named.items()} | table.users
        policies = {name: found for name, (_, found) in named.items() if name not in table.users}
        return principals(users, policies | table.policies, is_unlimited=self._is_unlimited)


def _table(path: Path) -> UserTable:
    try:
        return UserTable.decode(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read usersFile {path}: {error.strerror or error}") from error
    except RemoteProtocolError as error:
        raise ConfigError(f"usersFile {path} has not the form of a broker's users.json: {error}") from error
