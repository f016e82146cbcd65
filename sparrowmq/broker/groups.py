"""The consumer groups of one broker and their configuration; saved in `subscriptionGroup.json`.

The first heartbeat or pull creates a group (autoCreateSubscriptionGroup), or an operator does. An operator may forbid
consuming, set the number of retries of a message, or switch off the notices about members.
Source: SubscriptionGroupManager, Java 4.9.8.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from sparrowmq.broker.saved_state import SavedFile, saved_content, unmarked
from sparrowmq.errors import RemoteError
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol import names
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests.bodies import DataVersion, GroupConfig, GroupConfigTable, JournalMark
from sparrowmq.protocol.wire import json

log = logging.getLogger(__name__)


class Groups:
    """The groups, and one version for all of them.

    Args:
        path: of subscriptionGroup.json.
        auto_create: whether a consumer creates its group.
        known: the groups and their version, if they are known from the log; else the file has them.
    Attributes:
        on_put, on_delete: called with a group that changed, or the name of a deleted one, at once.
        mark: returns the part of the journal that the groups have.
    Raises:
        BadStore: neither the file nor one of its copies can be read.
    """

    def __init__(self, path: Path, auto_create: bool, clock: Clock, replayed: GroupConfigTable | None = None) -> None:
        self._auto_create = auto_create
        self._clock = clock
        self.on_put: Callable[[GroupConfig], object] = lambda _: None
        self.on_delete: Callable[[str], object] = lambda _: None
        self.mark: Callable[[], JournalMark | None] = unmarked
        saved = replayed or saved_content(path, GroupConfigTable, json.decode) or GroupConfigTable()
        self.version = saved.data_version
        self._table: dict[str, GroupConfig] = saved.subscription_group_table
        self.file = SavedFile(path, self.content)

    def use(self, auto_create: bool) -> None:
        """Allow consumers to create their groups from now on, or forbid it."""
        self._auto_create = auto_create

    def get(self, name: str) -> GroupConfig | None:
        return self._table.get(name)

    def ensure(self, name: str) -> GroupConfig:
        """Return the group; create it if it does not exist.

        Raises:
            RemoteError: SUBSCRIPTION_GROUP_NOT_EXIST, consumers cannot create groups on this broker.
            InvalidName
        """
        known = self._table.get(name)
        if known is not None:
            return known
        made = self.new(name)
        log.info("group %s is made by its consumer", name)
        return self.put(made)

    def new(self, name: str) -> GroupConfig:
        """Return the settings of a group that its consumer would create. Raises: as `ensure`."""
        names.check_group(name)
        if not self._auto_create and not names.is_system_group(name):
            raise RemoteError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {name}, and autoCreateSubscriptionGroup is false on this broker; "
                "create it by mqadmin updateSubGroup",
            )
        return GroupConfig(name)

    def put(self, group: GroupConfig) -> GroupConfig:
        """Create or replace a group; the caller has checked it."""
        self._table[group.group_name] = group
        self.version = self.version.after_change(self._clock.now_ms())
        self.on_put(group)
        self.file.touch()
        return group

    def delete(self, name: str) -> bool:
        """Delete a group. Returns whether it existed. Its consumers, if any, create it again."""
        if self._table.pop(name, None) is None:
            return False
        log.info("group %s is deleted", name)
        self.version = self.version.after_change(self._clock.now_ms())
        self.on_delete(name)
        self.file.touch()
        return True

    def all(self) -> list[GroupConfig]:
        return list(self._table.values())

    def content(self) -> GroupConfigTable:
        """The content of subscriptionGroup.json, and of the answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG."""
        return GroupConfigTable(self.version, dict(self._table), journal=self.mark())

    @property
    def table(self) -> dict[str, GroupConfig]:
        """All groups by name, as they change."""
        return self._table

    def follow(self, masters: GroupConfigTable) -> None:
        """Take over the groups of the master, on its slave."""
        if not masters.data_version.is_same(self.version):
            self.take(masters.data_version, dict(masters.subscription_group_table))

    def take(self, version: DataVersion, table: dict[str, GroupConfig]) -> None:
        """Have the groups of this table, which the caller may change further."""
        self.version, self._table = version, table
        self.file.touch()
