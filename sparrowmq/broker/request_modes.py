"""Which groups pop which topics, as an operator has set it; saved in `messageRequestMode.json`.

Members of Java's push consumer that leave sharing to the broker (`clientRebalance=false`) ask for their queues, and
learn from the answer whether to pull or to pop. A group without a mode pulls. Slaves copy the modes from their master.
Source: MessageRequestModeManager, Java 5.4.0; the file is Apache's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sparrowmq.broker.saved_state import SavedFile, saved_content
from sparrowmq.protocol.requests.assignment_bodies import RequestMode, RequestModeTable
from sparrowmq.protocol.wire import json

FILE: Final = "messageRequestMode.json"


class RequestModes:
    """The modes by topic and group.

    Args:
        folder: the one of messageRequestMode.json.
    Raises:
        BadStore: neither the file nor one of its copies can be read.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / FILE
        saved = saved_content(path, RequestModeTable, json.decode) or RequestModeTable()
        self._table = saved.message_request_mode_map
        self.file = SavedFile(path, self.content)

    def get(self, topic: str, group: str) -> RequestMode:
        """Return the mode of a group; a group without one pulls."""
        return self._table.get(topic, {}).get(group) or RequestMode(topic, group)

    def put(self, mode: RequestMode) -> None:
        """Set a mode; the caller has checked it."""
        of_topic = self._table.get(mode.topic, {}) | {mode.consumer_group: mode}
        self._table = self._table | {mode.topic: of_topic}
        self.file.touch()

    def content(self) -> RequestModeTable:
        """The content of messageRequestMode.json, and of the answer to GET_ALL_MESSAGE_REQUEST_MODE."""
        return RequestModeTable(self._table)

    def follow(self, told: RequestModeTable) -> None:
        """Take over the modes of the master, on its slave."""
        if told.message_request_mode_map != self._table:
            self._table = told.message_request_mode_map
            self.file.touch()
