"""RECALL_MESSAGE (370): cancel the delivery of a message that waits for its time.

The broker stores the recall as a timer that is due with the message (timer.py). So a recall is as safe as the message,
and needs no search. As in Java, the answer does not say whether the message existed, nor whether it is of another
account. Then the recall has no effect (protocol/messages/recalls.py).
Source: RecallMessageProcessor, Java 5.4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sparrowmq.broker.handlers.handler import Handler, SharedParts
from sparrowmq.errors import ConfigError, RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.properties import Properties, render
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.protocol.messages.recalls import RecallHandle, delete_key
from sparrowmq.protocol.requests.headers import RecallMessage, RecallMessageReply
from sparrowmq.remoting.handler import ReplyWhenDurable, handles
from sparrowmq.remoting.peer import Peer

_TAG: Final = "_RECALL_TAG_"
_BODY: Final = b"0"


class RecallHandler(Handler):
    def __init__(self, shared: SharedParts, is_over: Callable[[int], bool], enabled: bool) -> None:
        super().__init__(shared)
        self._is_over = is_over
        self._enabled = enabled

    @handles(RecallMessage)
    def recall(self, header: RecallMessage, body: bytes, peer: Peer) -> ReplyWhenDurable:
        if not self._enabled:
            raise _refused(ResponseCode.NO_PERMISSION, "operation is forbidden: recallMessageEnable is false")
        if self._topics.get(header.topic) is None:
            raise _refused(ResponseCode.TOPIC_NOT_EXIST, f"the topic[{header.topic}] not exist")
        try:
            handle = RecallHandle.parse(header.recall_handle)
        except ConfigError as error:
            raise RemoteError(ResponseCode.ILLEGAL_OPERATION, str(error)) from error
        if handle.topic != header.topic:
            raise _refused(ResponseCode.ILLEGAL_OPERATION, f"topic not match: the handle is of {handle.topic}")
        if handle.broker_name != self._topics.broker_name:
            raise _refused(ResponseCode.ILLEGAL_OPERATION, f"the message waits at broker {handle.broker_name}")
        if handle.due_ms <= self._clock.now_ms() or self._is_over(handle.due_ms):
            raise _refused(ResponseCode.ILLEGAL_OPERATION, "timestamp invalid: the message was due already")
        placed = self._writer.put(self._entry(header, handle, peer))
        return ReplyWhenDurable(self._store.durability(True), placed.end, RecallMessageReply(handle.unique_id))

    def _entry(self, header: RecallMessage, handle: RecallHandle, peer: Peer) -> Entry:
        now_ms = self._clock.now_ms()
        properties = {
            Property.TAGS: _TAG,
            Property.TIMER_DEL_UNIQKEY: delete_key(handle.topic, handle.unique_id),
            Property.UNIQ_KEY: handle.unique_id,
            Property.TIMER_DELIVER_MS: str(handle.due_ms),
            Property.BORN_TIMESTAMP: str(now_ms),
            Property.PGROUP: header.producer_group or "",
        }
        set_properties = {name: value for name, value in properties.items() if value}
        entry = Entry(handle.topic, 0, _BODY, Properties(render(set_properties)), now_ms, peer.host)
        principal = peer.principal
        if principal is not None and not principal.is_admin:
            entry.owner = principal.access_key
        return entry


def _refused(code: int, reason: str) -> RemoteError:
    return RemoteError(code, f"recall failed, {reason}")
