"""The consumer groups of one broker and how each consumes; kept in `subscriptionGroup.json`.

A group is made by its first heartbeat or pull (autoCreateSubscriptionGroup), or by an operator, who may forbid
consuming, set how often a message is retried, or switch off the notices about members.
Source: SubscriptionGroupManager, Java 4.9.8.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from sparrowmq.broker.saved_state import SavedFile, saved_content
from sparrowmq.errors import RemoteError
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol import names
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests.bodies import GroupConfig, GroupConfigTable
from sparrowmq.protocol.wire import json

log = logging.getLogger(__name__)


class Groups:
    """The groups and the version of their whole.

    Args:
        path: of subscriptionGroup.json.
        auto_create: whether a consumer makes its group.
    Raises:
        BadStore: the file cannot be read, nor its copies.
    """

    def __init__(self, path: Path, auto_create: bool, clock: Clock) -> None:
        self._auto_create = auto_create
        self._clock = clock
        saved = saved_content(path, GroupConfigTable, json.decode) or GroupConfigTable()
        self.version = saved.data_version
        self._table: dict[str, GroupConfig] = saved.subscription_group_table
        self.file = SavedFile(path, self.content)

    def use(self, auto_create: bool) -> None:
        """From now on let consumers make their groups, or not."""
        self._auto_create = auto_create

    def get(self, name: str) -> GroupConfig | None:
        return self._table.get(name)

    def ensure(self, name: str) -> GroupConfig:
        """The group, made if need be.

        Raises:
            RemoteError: SUBSCRIPTION_GROUP_NOT_EXIST, this broker does not make groups for consumers.
            InvalidName
        """
        known = self._table.get(name)
        if known is not None:
            return known
        names.check_group(name)
        if not self._auto_create and not names.is_system_group(name):
            raise RemoteError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {name}, and autoCreateSubscriptionGroup is false on this broker; "
                "create it by mqadmin updateSubGroup",
            )
        log.info("group %s is made by its consumer", name)
        return self.put(GroupConfig(name))

    def put(self, group: GroupConfig) -> GroupConfig:
        """Create or replace a group; the caller has checked it."""
        self._table[group.group_name] = group
        self._changed()
        return group

    def delete(self, name: str) -> bool:
        """Forget a group; returns whether there was one. Its consumers, if any, make it anew."""
        if self._table.pop(name, None) is None:
            return False
        log.info("group %s is deleted", name)
        self._changed()
        return True

    def all(self) -> list[GroupConfig]:
        return list(self._table.values())

    def content(self) -> GroupConfigTable:
        """What subscriptionGroup.json holds, and what GET_ALL_SUBSCRIPTIONGROUP_CONFIG answers."""
        return GroupConfigTable(self.version, dict(self._table))

    def follow(self, told: GroupConfigTable) -> None:
        """Be as the master says, on its slave."""
        if not told.data_version.is_same(self.version):
            self.version, self._table = told.data_version, dict(told.subscription_group_table)
            self.file.touch()

    def _changed(self) -> None:
        self.version = msgspec.structs.replace(
            self.version, counter=self.version.counter + 1, timestamp=self._clock.now_ms()
        )
        self.file.touch()
