"""The victim: an account with everything that a broker can keep for an account, and a judge of all of it.

    orders                 messages, delayed, timed and half messages, a lock, offsets, a staged batch, a group
    asks                   a request that waits for its answer
    %RETRY%owners, %DLQ%owners
    rmq_sys_..., and so on where the broker keeps the delayed, timed, half and staged ones

`prepare` renews what a round uses up. `targets` says how each thing is named in requests: by field name, as in the
structs of the request table. judge.py sees whether all of it is as the victim left it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from sparrowmq.broker.broker import Broker
from sparrowmq.protocol.messages import batch
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.messages.message_id import parse_offset_id
from sparrowmq.protocol.messages.properties import render
from sparrowmq.protocol.requests import admin_headers as admin
from sparrowmq.protocol.requests import bodies, client_bodies, headers, namesrv_headers
from sparrowmq.protocol.subscription import Subscription
from sparrowmq.protocol.wire.command import Command
from sparrowmq.testing.clock import ManualClock
from tests.broker.live import send_request
from tests.fuzz.access.wire import Credentials, Wire

# It is in every body and in some names of the victim, and in no name that an attacker knows.
MARKER: Final = b"s3cr3t"
SECRET: Final = MARKER.decode()
OWNER: Final = Credentials("owner-account", "owner-secret")
ADMIN: Final = Credentials("admin-account", "admin-secret")
WHITE: Final = "127.0.0.9"
REPLY_TOPIC: Final = "DefaultCluster_REPLY_TOPIC"
ACCOUNTS: Final = f"""
globalWhiteRemoteAddresses:
  - {WHITE}
accounts:
  - accessKey: {OWNER.access_key}
    secretKey: {OWNER.secret_key}
    topicPerms: [orders=PUB|SUB, asks=PUB|SUB, jobs=PUB|SUB, {REPLY_TOPIC}=PUB]
    groupPerms: [owners=PUB|SUB, poppers=PUB|SUB, owner-producers=PUB|SUB, locks=PUB|SUB, waiters=PUB|SUB]
  - accessKey: {ADMIN.access_key}
    secretKey: {ADMIN.secret_key}
    admin: true
  - accessKey: denied-account
    secretKey: denied-secret
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
  - accessKey: other-account
    secretKey: other-secret
    topicPerms: [theirs=PUB|SUB, theirs-2=PUB|SUB, {REPLY_TOPIC}=PUB]
    groupPerms: [theirs=PUB|SUB, theirs-2=PUB|SUB]
  - accessKey: reader-account
    secretKey: reader-secret
    defaultTopicPerm: SUB
    topicPerms: [orders=DENY, asks=DENY, jobs=DENY, {SECRET}-audit=DENY, theirs=PUB|SUB]
    groupPerms: [theirs=PUB|SUB, theirs-2=SUB]
  - accessKey: subscriber-account
    secretKey: subscriber-secret
    topicPerms: [orders=SUB, jobs=SUB, theirs=PUB|SUB]
    groupPerms: [theirs=SUB, theirs-2=SUB]
  - accessKey: publisher-account
    secretKey: publisher-secret
    topicPerms: [orders=PUB, theirs=PUB|SUB]
    groupPerms: [theirs=SUB, theirs-2=SUB]
  - accessKey: broker-account
    secretKey: broker-secret
    broker: true
"""
SETTINGS: Final[dict[str, Any]] = {
    "trace_topic_enabled": True,
    "access_key": "broker-account",
    "secret_key": "broker-secret",
}
# The broker makes users with policies of the same accounts.
USERS: Final[dict[str, Any]] = {"authentication": True, "authorization": True, "migrates_accounts": True}
# Of its first message, and of its timed one.
UNIQUE_IDS: Final = ("7F00000100002A9F0000000000000001", "7F00000100002A9F0000000000000002")
STAGED_COUNT: Final = 2
# The delay of what arrives last, and the delay level that is as long: after a short life or a long one.
LATE: Final = {True: (180, 7), False: (600, 14)}
SETTLE_S: Final = 10.0
BEAT_S: Final = 60

Target = dict[str, Any]  # the value of each field of requests that names one thing


class Victim:
    """The owner's things at one broker.

    Attributes:
        main, asker: connections of the owner; `asker` waits for answers.
        admin, route_admin: connections of an administrator to broker and name server.
        targets: by name, the fields that name each thing.
        unread: the bodies that were sent to topic `orders`, and that the judge has not seen there yet.
        late: the bodies that arrive there after `timer_s`.
        read: the bodies that the judge has seen there.
        shown: the bodies that the consumers of its topics may hear in this round.
    """

    def __init__(self, broker: Broker, namesrv: str, clock: ManualClock, *, is_short: bool = False) -> None:
        self._address = broker.address
        self._namesrv = namesrv
        self._clock = clock
        self.round = 0
        self.unread: list[bytes] = []
        self.read: set[bytes] = set()
        self.shown: set[bytes] = set()
        self.late = [b"%s delayed" % MARKER, b"%s timed" % MARKER]
        self.timer_s, self._level = LATE[is_short]
        self.targets: dict[str, Target] = {}

    async def settle_in(self) -> None:
        """Make what lasts for the whole life of the broker."""
        self.main = await Wire.to(self._address, OWNER)
        self.asker = await Wire.to(self._address, OWNER)
        self.admin = await Wire.to(self._address, ADMIN)
        self.route_admin = await Wire.to(self._namesrv, ADMIN)
        await self.route_admin.ask(namesrv_headers.PutKVConfig("space", "key", "value"))
        for topic in ("orders", "asks", "jobs", f"{SECRET}-audit", "theirs", "theirs-2"):
            await self.admin.ask(admin.UpdateAndCreateTopic(topic, 1, 1, 6, "TBW102", "SINGLE_TAG", 0))
        for group in ("owners", "poppers", "locks", "waiters", "theirs", "theirs-2"):
            config = bodies.GroupConfig(group, retry_max_times=5).encode()
            await self.admin.ask(admin.UpdateAndCreateSubscriptionGroup(), config)
        await self.beat()
        await self._fill()
        await self._time()
        self.targets["route"] = {
            "topic": "orders", "broker_name": "broker-0", "cluster_name": "DefaultCluster",
            "broker_addr": self._address, "broker_id": 0, "namespace": "space", "key": "key", "body_crc32": 0,
        }  # fmt: skip
        self.targets["half"] = await self._half("lasting")

    async def prepare(self) -> None:
        """Renew what one round uses up."""
        self.round += 1
        self.shown = self.read | set(self.unread)
        await self.beat()
        await self.main.ask(headers.UpdateConsumerOffset("owners", "orders", 0, 2))
        self.targets["commit"] = await self._half(f"committed-{self.round}")
        self.targets["rollback"] = await self._half(f"rolled-back-{self.round}")
        await self.lock()
        await self._stage()
        await self._ask_for_reply()

    def close(self) -> None:
        for wire in (self.main, self.asker, self.admin, self.route_admin):
            wire.close()

    def without_shown(self, heard: bytes) -> bytes:
        """The bytes without what consumers may hear: nothing that came to `orders` after the round began."""
        for body in sorted(self.shown, key=len, reverse=True):
            heard = heard.replace(body, b"")
        return heard

    async def send(self, topic: str, body: bytes, properties: dict[str, str], arrives: bool = True) -> Command:
        """Send one message. `arrives`: whether consumers get it in this round."""
        whole = b"%s %s" % (MARKER, body)
        if arrives and topic == "orders":
            self.unread.append(whole)
        request = send_request(topic, 0, properties, producer_group="owner-producers")
        return await self.main.ask(request, whole)

    # What it owns -------------------------------------------------------------------------------------------------

    async def beat(self) -> None:
        consumer = client_bodies.ConsumerBeat(
            "owners", subscription_data_set=[Subscription("orders", f"{SECRET}-tag", version=1)]
        )
        producers = [client_bodies.ProducerBeat("owner-producers")]
        for wire, client_id in ((self.main, f"{SECRET}@2"), (self.asker, "owner@1")):
            beat = client_bodies.Heartbeat(client_id, producers, [consumer])
            await wire.ask(headers.HeartBeat(), beat.encode())

    async def _fill(self) -> None:
        keys = {"KEYS": "order-1", "UNIQ_KEY": UNIQUE_IDS[0], "TAGS": "t"}
        first = await self.send("orders", b"first", keys)
        await self.send("orders", b"second", {})
        lasting = {"topic": "orders", "key": "order-1", "consumer_group": "owners", "group": "owners"}
        self.targets["message"] = {**lasting, **_named(first), "queue_id": 0, "queue_offset": 0}
        for name, most, topic in (("retry", 5, "%RETRY%owners"), ("dead", 0, "%DLQ%owners")):
            back = headers.ConsumerSendMsgBack(_offset(first), "owners", self._level, None, "orders", None, most)
            await self.main.ask(back)
            self.targets[name] = {
                "topic": topic,
                "group": "owners",
                "consumer_group": "theirs",
                "queue_id": 0,
            }
        await self.main.ask(headers.UpdateConsumerOffset("owners", "orders", 0, 2))

    async def _time(self) -> None:
        delayed = await self.send("orders", b"delayed", {"DELAY": str(self._level), "KEYS": "order-2"}, False)
        timed = await self.send(
            "orders",
            b"timed",
            {"TIMER_DELAY_SEC": str(self.timer_s), "UNIQ_KEY": UNIQUE_IDS[1], "KEYS": "order-3"},
            False,
        )
        system = {"group": "theirs", "consumer_group": "theirs", "queue_offset": 0}
        self.targets["delayed"] = {
            **system, **_named(delayed), "topic": "SCHEDULE_TOPIC_XXXX", "queue_id": self._level - 1, "key": "order-2",
        }  # fmt: skip
        self.targets["timed"] = {
            **system, **_named(timed), "topic": "rmq_sys_wheel_timer", "queue_id": 0, "key": "order-3",
        }  # fmt: skip
        handle = timed.header(headers.SendMessageReply).recall_handle
        self.targets["recall"] = {
            "topic": "orders",
            "recall_handle": handle,
            "producer_group": "owner-producers",
        }

    async def _half(self, body: str) -> Target:
        unique = f"7F00000100002A9F{self.round:08}{len(body):08}"
        marks = {"TRAN_MSG": "true", "PGROUP": "owner-producers", "UNIQ_KEY": unique, "KEYS": "order-4"}
        sent = await self.send("orders", body.encode(), marks, False)
        reply = sent.header(headers.SendMessageReply)
        return {
            **_named(sent),
            "topic": "RMQ_SYS_TRANS_HALF_TOPIC",
            "queue_id": 0,
            "key": "order-4",
            "consumer_group": "theirs",
            "producer_group": "owner-producers",
            "commit_log_offset": _offset(sent),
            "tran_state_table_offset": reply.queue_offset,
            "queue_offset": reply.queue_offset,
            "transaction_id": unique,
            "commit_or_rollback": (8, 12),
        }

    async def lock(self) -> None:
        """Lock a queue, or keep the lock."""
        queues = client_bodies.LockQueues("locks", "owner@1", [MessageQueue("orders", "broker-0", 0)])
        await self.main.ask(headers.LockBatchMq(), queues.encode())
        self.targets["lock"] = {
            "consumer_group": "locks", "client_id": "owner@1", "topic": "orders", "broker_name": "broker-0",
            "queue_id": 0,
        }  # fmt: skip

    async def _stage(self) -> None:
        parts = [
            batch.BatchPart(
                b"%s staged-%d-%d" % (MARKER, self.round, number),
                b"UNIQ_KEY\x01%016d%016d\x02" % (self.round, number),
            )
            for number in range(STAGED_COUNT)
        ]
        born = self._clock.now_ms()
        header = headers.StageBatch("orders", 0, "query", "run-1", self.round, "attempt", 0, born)
        await self.main.ask(header, batch.encode(parts))
        self.targets["staged"] = {
            "topic": "rmq_sys_STAGED", "queue_id": 0, "writer": "query", "run": ("run-1", "run-2"),
            "batch": (self.round, self.round, 1 << 62), "attempt": "attempt", "number": (0, 1), "group": "theirs",
            "consumer_group": "theirs", "queue_offset": 2 * self.round - 1,
        }  # fmt: skip

    async def _ask_for_reply(self) -> None:
        self.correlation = f"correlation-{self.round}"
        marks = {"REPLY_TO_CLIENT": "owner@1", "CORRELATION_ID": self.correlation, "TTL": "3000"}
        await self.send("asks", b"ask %d" % self.round, marks)
        self.targets["reply"] = {"topic": REPLY_TOPIC, "client_id": "owner@1", "properties": render(marks)}


def accounts_at(folder: Path) -> Path:
    """Write the file of accounts."""
    path = folder / "plain_acl.yml"
    path.write_text(ACCOUNTS)
    return path


def _named(sent: Command) -> Target:
    """How requests name a stored message."""
    reply = sent.header(headers.SendMessageReply)
    return {"offset": _offset(sent), "msg_id": reply.msg_id, "origin_msg_id": reply.msg_id}


def _offset(sent: Command) -> int:
    return parse_offset_id(sent.header(headers.SendMessageReply).msg_id).physical_offset
