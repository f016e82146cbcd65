"""The consumer groups of one broker: their configuration, and whether they pull or pop (`RequestModes`).

The configuration is in `subscriptionGroup.json`. The first heartbeat or pull creates a group
(autoCreateSubscriptionGroup), or an operator does. An operator may forbid consuming, set the number of retries of a
message, or switch off the notices about members.
Source: SubscriptionGroupManager, Java 4.9.8.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sparrowmq.broker.change_log import UNLOGGED, Change, ChangeLog, split_table
from sparrowmq.broker.saved_state import SavedFile, saved_content
from sparrowmq.errors import RemoteError
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol import names
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests.bodies import DataVersion, GroupConfig, GroupConfigTable
from sparrowmq.protocol.requests.client_bodies import Modes, RequestMode, RequestModeTable
from sparrowmq.protocol.wire import json

log = logging.getLogger(__name__)
MODES_FILE: Final = "messageRequestMode.json"


class Groups:
    def __init__(
        self,
        path: Path,
        auto_create: bool,
        clock: Clock,
        replayed: GroupConfigTable | None = None,
        change_log: ChangeLog = UNLOGGED,
    ) -> None:
        self._auto_create = auto_create
        self._clock = clock
        self._change_log = change_log
        saved = replayed or saved_content(path, GroupConfigTable, json.decode) or GroupConfigTable()
        self.version = saved.data_version
        self.table: dict[str, GroupConfig] = saved.subscription_group_table
        self.file = SavedFile(path, self.content, change_log=change_log)

    def allow_auto_create(self, is_allowed: bool) -> None:
        self._auto_create = is_allowed

    def get(self, name: str) -> GroupConfig | None:
        return self.table.get(name)

    def ensure(self, name: str) -> GroupConfig:
        """Return the group; create it if it does not exist. Raises: RemoteError, it may not be created; InvalidName."""
        group = self.table.get(name)
        if group is not None:
            return group
        new_group = self.new(name)
        log.info("group %s is made by its consumer", name)
        return self.put(new_group)

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
        self.table[group.group_name] = group
        self.version = self.version.after_change(self._clock.now_ms())
        self._change_log.note(Change(groups=[group], groups_version=self.version))
        self.file.touch()
        return group

    def delete(self, name: str) -> bool:
        """Delete a group. Returns whether it existed. Its consumers, if any, create it again."""
        if self.table.pop(name, None) is None:
            return False
        log.info("group %s is deleted", name)
        self.version = self.version.after_change(self._clock.now_ms())
        self._change_log.note(Change(no_group=name, groups_version=self.version))
        self.file.touch()
        return True

    def all(self) -> list[GroupConfig]:
        return list(self.table.values())

    def content(self) -> GroupConfigTable:
        return GroupConfigTable(self.version, dict(self.table), journal=self._change_log.mark())

    def snapshot(self) -> Iterator[Change]:
        for groups in split_table(self.table, self._change_log.max_record_bytes):
            yield Change(groups=groups, groups_version=self.version)

    def follow(self, masters: GroupConfigTable) -> None:
        if not masters.data_version.is_same(self.version):
            self.replace(masters.data_version, dict(masters.subscription_group_table))

    def replace(self, version: DataVersion, table: dict[str, GroupConfig]) -> None:
        self.version, self.table = version, table
        self.file.touch()


class RequestModes:
    """The modes by topic and group, and one version for all of them. Saved in `messageRequestMode.json`.

    An operator sets whether a group pulls or pops a topic; a group without a mode pulls. Members of Java's push
    consumer with `clientRebalance=false` learn the mode with their queues.
    Source: MessageRequestModeManager, Java 5.4.0.
    """

    def __init__(
        self,
        path: Path,
        clock: Clock,
        replayed: RequestModeTable | None = None,
        change_log: ChangeLog = UNLOGGED,
    ) -> None:
        self._clock = clock
        self._change_log = change_log
        saved = replayed or saved_content(path, RequestModeTable, json.decode) or RequestModeTable()
        self.table = saved.message_request_mode_map  # a change makes a new one, so a reader can keep this one
        self.version = saved.data_version or (DataVersion() if self.table else None)  # None before the first change
        self.file = SavedFile(path, self.content, change_log=change_log)

    def get(self, topic: str, group: str) -> RequestMode:
        return self.table.get(topic, {}).get(group) or RequestMode(topic, group)

    def put(self, mode: RequestMode) -> None:
        self.table = with_mode(self.table, mode)
        self.version = (self.version or DataVersion()).after_change(self._clock.now_ms())
        self.file.touch()
        self._change_log.note(Change(modes=[mode], modes_version=self.version))

    def content(self) -> RequestModeTable:
        """The content of messageRequestMode.json, and of the answer to GET_ALL_MESSAGE_REQUEST_MODE."""
        return RequestModeTable(self.table, self.version, self._change_log.mark())

    def snapshot(self) -> Iterator[Change]:
        for mode in [mode for of_topic in self.table.values() for mode in of_topic.values()]:
            yield Change(modes=[mode], modes_version=self.version)

    def replace(self, version: DataVersion | None, modes: Modes) -> None:
        if (version, modes) != (self.version, self.table):
            self.version, self.table = version, modes
            self.file.touch()


def with_mode(modes: Modes, mode: RequestMode) -> Modes:
    return modes | {mode.topic: modes.get(mode.topic, {}) | {mode.consumer_group: mode}}
