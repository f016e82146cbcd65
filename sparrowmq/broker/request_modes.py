"""Request modes: an operator sets whether a group pulls or pops a topic. Saved in `messageRequestMode.json`.

Members of Java's push consumer that leave sharing to the broker (`clientRebalance=false`) ask for their queues, and
learn from the answer whether to pull or to pop. A group without a mode pulls. The journal records each change.
Source: MessageRequestModeManager, Java 5.4.0; the file is Apache's.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from sparrowmq.broker.saved_state import SavedFile, saved_content, unmarked
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.requests.bodies import DataVersion, JournalMark
from sparrowmq.protocol.requests.client_bodies import Modes, RequestMode, RequestModeTable
from sparrowmq.protocol.wire import json

FILE: Final = "messageRequestMode.json"


class RequestModes:
    """The modes by topic and group, and one version for all of them.

    Args:
        path: the path of messageRequestMode.json.
        known: the modes and their version from the log; None to read the file.
    Attributes:
        version: None before the first change.
        on_put: called with a mode that changed, at once.
        mark: returns the place in the journal up to which the modes are complete.
    Raises:
        BadStore: neither the file nor one of its copies can be read.
    """

    def __init__(self, path: Path, clock: Clock, replayed: RequestModeTable | None = None) -> None:
        self._clock = clock
        self.on_put: Callable[[RequestMode], object] = lambda _: None
        self.mark: Callable[[], JournalMark | None] = unmarked
        saved = replayed or saved_content(path, RequestModeTable, json.decode) or RequestModeTable()
        self._table = saved.message_request_mode_map
        self.version = saved.data_version or (DataVersion() if self._table else None)
        self.file = SavedFile(path, self.content)

    @property
    def table(self) -> Modes:
        """All modes. A change makes a new table, so a reader can keep this one."""
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
        """Replace the modes on a slave: by those of the journal, or of a master without a journal."""
        if (version, modes) != (self.version, self._table):
            self.version, self._table = version, modes
            self.file.touch()


def with_mode(modes: Modes, mode: RequestMode) -> Modes:
    """Return a copy of the modes with one mode added or changed."""
    return modes | {mode.topic: modes.get(mode.topic, {}) | {mode.consumer_group: mode}}
