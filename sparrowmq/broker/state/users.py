"""The users of one broker and their policies (ACL 2.0); saved in `users.json`.

They are replicated state, like topics and groups: each change is a record of the log. Passwords are in plain text, in
the file and in the log, because the check of a signature needs them (decision 78). So only the owner can read the file,
and only administrators can read the topic of the journal.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sparrowmq.broker.saved_state import SavedFile, saved_content, unmarked
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.requests.bodies import DataVersion, JournalMark
from sparrowmq.protocol.requests.user_headers import SUBJECT, Policy, UserEntry, UserPolicies, UserTable
from sparrowmq.protocol.wire import json

log = logging.getLogger(__name__)

FILE: Final = "users.json"


class Users:
    """The users and their policies, and one version for all of them.

    Args:
        path: of users.json.
        known: the users and their version, if they are known from the log; else the file has them.
    Attributes:
        on_change: called after every change.
        on_put, on_delete, on_policies: called with a user that changed, the name of a deleted one, or the policies of
            a subject that changed, at once.
        mark: returns the part of the journal that the users have.
    Raises:
        BadStore: neither the file nor one of its copies can be read.
    """

    def __init__(self, path: Path, clock: Clock, replayed: UserTable | None = None) -> None:
        self._clock = clock
        self.on_change: Callable[[], object] = lambda: None
        self.on_put: Callable[[UserEntry], object] = lambda _: None
        self.on_delete: Callable[[str], object] = lambda _: None
        self.on_policies: Callable[[UserPolicies], object] = lambda _: None
        self.mark: Callable[[], JournalMark | None] = unmarked
        saved = replayed or saved_content(path, UserTable, json.decode) or UserTable()
        self.version = saved.data_version
        self._users: dict[str, UserEntry] = saved.users
        self._policies: dict[str, list[Policy]] = saved.policies
        self.file = SavedFile(path, self.content, is_secret=True)

    @property
    def table(self) -> dict[str, UserEntry]:
        """All users by name, as they change."""
        return self._users

    @property
    def policies(self) -> dict[str, list[Policy]]:
        """The policies by user name, as they change."""
        return self._policies

    def get(self, name: str) -> UserEntry | None:
        return self._users.get(name)

    def of_subject(self, name: str) -> UserPolicies | None:
        found = self._policies.get(name)
        return UserPolicies(SUBJECT + name, found) if found else None

    def put(self, user: UserEntry) -> None:
        """Create or replace a user; the caller has checked it."""
        self._users[user.username] = user
        self._changed()
        self.on_put(user)

    def delete(self, name: str) -> bool:
        """Delete a user and its policies. Returns whether it existed."""
        if self._users.pop(name, None) is None:
            return False
        self._policies.pop(name, None)
        self._changed()
        self.on_delete(name)
        return True

    def set_policies(self, name: str, policies: list[Policy]) -> None:
        """Replace the policies of a user; the caller has checked them."""
        if policies:
            self._policies[name] = policies
        else:
            self._policies.pop(name, None)
        self._changed()
        self.on_policies(UserPolicies(SUBJECT + name, policies))

    def content(self) -> UserTable:
        return UserTable(self.version, dict(self._users), dict(self._policies), self.mark())

    def take(self, version: DataVersion, users: dict[str, UserEntry], policies: dict[str, list[Policy]]) -> None:
        """Have the users of these tables, which the caller may change further."""
        self.version, self._users, self._policies = version, users, policies
        self.file.touch()
        self.on_change()

    def _changed(self) -> None:
        self.version = self.version.after_change(self._clock.now_ms())
        self.file.touch()
        self.on_change()
