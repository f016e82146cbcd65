"""Which groups pop which topics, as an operator has set it; saved in `messageRequestMode.json`.

Members of Java's push consumer that leave sharing to the broker (`clientRebalance=false`) ask for their queues, and
learn from the answer whether to pull or to pop. A group without a mode pulls. Each change is a record of the log, as
for topics and groups.
Source: MessageRequestModeManager, Java 5.4.0; the file is Apache's.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from sparrowmq.broker.saved_state import SavedFile, saved_content, unmarked
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.requests.assignment_bodies import Modes, RequestMode, RequestModeTable
from sparrowmq.protocol.requests.bodies import DataVersion, JournalMark
from sparrowmq.protocol.wire import json

FILE: Final = "messageRequestMode.json"


class RequestModes:
    """The modes by topic and group, and one version for all of them.

    Args:
        path: of messageRequestMode.json.
        known: the modes and their version, if they are known from the log; else the file has them.
    Attributes:
        version: None before the first change.
        on_put: called with a mode that changed, at once.
        mark: returns the part of the journal that the modes have.
    Raises:
        BadStore: neither the file nor one of its copies can be read.
    """

    def __init__(self, path: Path, clock: Clock, known: RequestModeTable | None = None) -> None:
        self._clock = clock
        self.on_put: Callable[[RequestMode], object] = lambda _: None
        self.mark: Callable[[], JournalMark | None] = unmarked
        saved = known or saved_content(path, RequestModeTable, json.decode) or RequestModeTable()
        self._table = saved.message_request_mode_map
        self.version = saved.data_version or (DataVersion() if self._table else None)
        self.file = SavedFile(path, self.content)

    @property
    def table(self) -> Modes:
        """All modes. A change makes another table."""
        return self._table

    def get(self, topic: str, group: str) -> RequestMode:
        """Return the mode of a group; a group without one pulls."""
        return self._table.get(topic, {}).get(group) or RequestMode(topic, group)

    def put(self, mode: RequestMode) -> None:
        """Set a mode; the caller has checked it."""
        self._table = with_mode(self._table, mode)
        self.version = (self.version or DataVersion()).after_change(self._clock.now_ms())
        self.file.touch()
        self.on_put(mode)

    def content(self) -> RequestModeTable:
        """The content of messageRequestMode.json, and of the answer to GET_ALL_MESSAGE_REQUEST_MODE."""
        return RequestModeTable(self._table, self.version, self.mark())

    def take(self, version: DataVersion | None, modes: Modes) -> None:
        """Have these modes, on a slave: those of the journal, or what a master without one has answered."""
        if (version, modes) != (self.version, self._table):
            self.version, self._table = version, modes
            self.file.touch()


def with_mode(modes: Modes, mode: RequestMode) -> Modes:
    """The modes with a new or changed one."""
    return modes | {mode.topic: modes.get(mode.topic, {}) | {mode.consumer_group: mode}}
