"""A name server and broker of a few lines, which answers as a test tells it: for what a healthy broker never does.

    with Peer() as peer:
        peer.store("T", 0, bodies)
        peer.answers[11].extend([Refuse(2), HangUp()])     # the next two pulls; then the usual answers again
        peer.later[11, 20] = HangUp()                      # the 20th pull

Every connection is a thread of `socketserver`; queues are lists in memory.
"""

from __future__ import annotations

import json
import re
import socketserver
import threading
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Self

from sparrowmq.kernel.string_hash import string_hash
from sparrowmq.protocol import hosts
from sparrowmq.protocol.messages import batch, record
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.headers import OffsetReply, PullMessageReply, SendMessageReply
from sparrowmq.protocol.requests.offset_bodies import TopicOffset, TopicStats
from sparrowmq.protocol.subscription import Subscription
from sparrowmq.protocol.wire import codec
from sparrowmq.protocol.wire.command import Command
from sparrowmq.protocol.wire.frame import FrameReader
from sparrowmq.protocol.wire.header import Header
from tests import records

BROKER = "broker-a"


@dataclass
class Refuse:
    """An answer that is not the usual one."""

    code: int
    remark: str = "as the test says"
    header: Header | None = None


class HangUp:
    """End the connection instead of answering."""


class Silence:
    """Do not answer."""


class Peer:
    """`per_pull` is the most messages of one answer, as 32 is Java's; none reaches beyond a file of `per_file`."""

    def __init__(self, per_pull: int = 10_000) -> None:
        self.per_pull, self.per_file = per_pull, 300_000
        self.queues: dict[str, dict[int, list[bytes]]] = {}
        self.first: dict[tuple[str, int], int] = defaultdict(int)  # offsets below are gone
        self.answers: dict[int, deque] = defaultdict(deque)
        self.later: dict[tuple[int, int], object] = {}
        self.asked: list[tuple[int, dict[str, str]]] = []
        self.committed: dict[tuple[str, int], int] = {}
        self.brokers = [BROKER]
        self.incarnations: dict[str, int] = {}  # of topics, as our broker names them; empty as Java's
        self.masters = True  # or the name server knows slaves only
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    def store(self, topic, queue_id, bodies, properties=lambda offset: b"", times=lambda offset: offset, sys_flag=0):
        """Add messages to a queue, which is made with its topic."""
        messages = self.queues.setdefault(topic, {}).setdefault(queue_id, [])
        for body in bodies:
            offset = self.first[topic, queue_id] + len(messages)
            messages.append(_record(topic, queue_id, offset, body, properties(offset), times(offset), sys_flag))

    def delete(self, topic, queue_id, count):
        """Remove the oldest messages, as retention does."""
        del self.queues[topic][queue_id][:count]
        self.first[topic, queue_id] += count

    def count(self, code):
        return sum(1 for asked, _ in self.asked if asked == code)

    def answer(self, request: Command) -> bytes | None:
        fields = request.ext_fields()
        self.asked.append((request.code, fields))
        told = self.answers[request.code]
        answer = told.popleft() if told else self.later.get((request.code, self.count(request.code)))
        if isinstance(answer, HangUp):
            raise ConnectionAbortedError
        if isinstance(answer, Silence):
            return None
        if isinstance(answer, Refuse):
            return codec.encode_reply(request, answer.code, answer.header, answer.remark)
        code, header, body = _SERVE[request.code](self, fields, request.body)
        head = codec.encode_reply(request, code, header, "" if code else None, len(body))
        return head + bytes(body)

    def route(self, fields, _):
        if fields["topic"] not in self.queues:
            return 17, None, b""
        count = max(self.queues[fields["topic"]], default=-1) + 1
        rows = [
            {
                "brokerName": name,
                "perm": 6,
                "readQueueNums": count,
                "writeQueueNums": count,
                "topicSysFlag": 0,
            }
            for name in self.brokers
        ]
        addresses = {"0": self.address, "1": "127.0.0.1:1"} if self.masters else {"1": self.address}
        brokers = [{"brokerName": name, "cluster": "c", "brokerAddrs": addresses} for name in self.brokers]
        return 0, None, json.dumps({"brokerDatas": brokers, "queueDatas": rows}).encode()

    def clusters(self, _, __):
        known = {name: {"brokerName": name, "cluster": "c", "brokerAddrs": {}} for name in self.brokers}
        return 0, None, json.dumps({"brokerAddrTable": known}).encode()

    def topics(self, _, __):
        return 0, None, json.dumps({"topicList": list(self.queues)}).encode()

    def bounds(self, fields):
        topic, queue_id = fields["topic"], int(fields["queueId"])
        first = self.first[topic, queue_id]
        return first, first + len(self.queues[topic].get(queue_id, ()))

    def min_offset(self, fields, _):
        return 0, OffsetReply(self.bounds(fields)[0]), b""

    def max_offset(self, fields, _):
        if fields["topic"] not in self.queues:
            return 0, OffsetReply(0, 0 if self.incarnations else None), b""
        incarnation = self.incarnations.get(fields["topic"]) if "withIncarnation" in fields else None
        return 0, OffsetReply(self.bounds(fields)[1], incarnation), b""

    def stats(self, fields, _):
        topic = fields["topic"]
        if topic not in self.queues:
            return 17, None, b""
        ends = {
            MessageQueue(topic, BROKER, number): TopicOffset(
                self.first[topic, number],
                self.first[topic, number] + len(stored),
                record.store_timestamp_ms(stored[-1]) if stored else 0,
            )
            for number, stored in self.queues[topic].items()
        }
        return 0, None, TopicStats(ends).encode()

    def search(self, fields, _):
        """Java 4.9's way: somewhere near."""
        first, end = self.bounds(fields)
        return 0, OffsetReply((first + end) // 2), b""

    def group_offset(self, fields, _):
        offset = self.committed.get((fields["consumerGroup"], int(fields["queueId"])))
        return (22, None, b"") if offset is None else (0, OffsetReply(offset), b"")

    def commit(self, fields, _):
        self.committed[fields["consumerGroup"], int(fields["queueId"])] = int(fields["commitOffset"])
        return 0, None, b""

    def pull(self, fields, _):
        if "incarnation" in fields and int(fields["incarnation"]) != self.incarnations.get(fields["topic"]):
            return 17, None, b""
        first, end = self.bounds(fields)
        offset = int(fields["queueOffset"])
        if not first <= offset <= end:
            near = first if offset < first else end
            return 21, PullMessageReply(0, near, first, end), b""
        if offset == end:
            return 19, PullMessageReply(0, offset, first, end), b""
        messages = self.queues[fields["topic"]][int(fields["queueId"])]
        codes = Subscription.build("T", fields["subscription"]).codes  # none for all messages
        most = min(self.per_pull, int(fields["maxMsgNums"]), self.per_file - offset % self.per_file)
        room = int(fields.get("maxMsgBytes", 1 << 20))
        given: list[bytes] = []
        while offset < end and len(given) < most:
            message = messages[offset - first]
            room -= len(message)
            if room < 0 and given:
                break
            if not codes or _tag_code(message) in codes:
                given.append(message)
            offset += 1
        return (0 if given else 20), PullMessageReply(0, offset, first, end), b"".join(given)

    def send(self, fields, body):
        topic, queue_id = fields["b"], int(fields["e"])
        if topic not in self.queues:
            self.queues[topic] = {number: [] for number in range(4)}
        parts = (
            batch.decode(body)
            if fields["m"] == "true"
            else [batch.BatchPart(body, fields["i"].encode(), int(fields["h"]))]
        )
        offset = self.bounds({"topic": topic, "queueId": queue_id})[1]
        for part in parts:
            self.store(topic, queue_id, [bytes(part.body)], lambda _, part=part: bytes(part.properties))
        return 0, SendMessageReply("ID", queue_id, offset), b""


_SERVE = {
    105: Peer.route,
    106: Peer.clusters,
    206: Peer.topics,
    31: Peer.min_offset,
    30: Peer.max_offset,
    29: Peer.search,
    202: Peer.stats,
    14: Peer.group_offset,
    15: Peer.commit,
    11: Peer.pull,
    310: Peer.send,
    320: Peer.send,
}


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        super().__init__(("127.0.0.1", 0), _Connection)


class _Connection(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        frames = FrameReader()
        try:
            while chunk := self.request.recv(1 << 16):
                for frame in frames.feed(chunk):
                    reply = self.server.peer.answer(codec.decode(*frame))
                    if reply is not None:
                        self.request.sendall(reply)
        except OSError:
            pass


def _tag_code(message):
    """All that a broker knows of a tag."""
    found = re.search(rb"TAGS\x01(.*?)\x02", message)
    return string_hash(found[1].decode()) if found else 0


def _record(topic, queue_id, offset, body, properties, time_ms, sys_flag=0):
    return records.encoded(
        topic=topic,
        queue_id=queue_id,
        flag=0,
        queue_offset=offset,
        physical_offset=offset * 1000,
        sys_flag=sys_flag,
        born_timestamp_ms=time_ms,
        born_host=hosts.pack("10.0.0.1:5000"),
        store_timestamp_ms=time_ms,
        store_host=hosts.pack("10.0.0.1:10911"),
        reconsume_times=0,
        prepared_offset=0,
        body=body,
        properties=properties,
        crc=False,
    )
