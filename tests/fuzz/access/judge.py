"""The judge: what is not as the victim left it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import msgspec

from sparrowmq.protocol import names
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message import MessageQueue, StoredMessage
from sparrowmq.protocol.messages.properties import render
from sparrowmq.protocol.requests import admin_headers as admin
from sparrowmq.protocol.requests import client_bodies, headers, namesrv_headers, user_headers
from sparrowmq.protocol.wire import json
from sparrowmq.protocol.wire.header import Request
from sparrowmq.testing.clock import ManualClock
from tests.broker.live import pull_request, send_request
from tests.fuzz.access.victim import BEAT_S, MARKER, REPLY_TOPIC, SETTLE_S, STAGED_COUNT, Victim

ALLOWED: Final = b"from the publisher"  # which may send to `orders`


class Judge:
    """Compares the victim's things with what the victim did.

    Args:
        accounts: the file of accounts.
        has_users: whether the broker has users and policies in its place.
    """

    def __init__(self, victim: Victim, clock: ManualClock, accounts: Path, has_users: bool = False) -> None:
        self._victim = victim
        self._clock = clock
        self._accounts = accounts
        self._has_users = has_users
        self._read = 0
        self._before: dict[str, Any] = {}

    async def look(self) -> None:
        """Note the state before the attacks."""
        self._before = await self._state()

    async def judge(self) -> list[str]:
        """What attackers did to the victim in this round; uses up what `prepare` renewed."""
        faults: list[str] = []
        for name, part in (
            ("its state", self._compare),
            ("its locks", self._judge_locks),
            ("its transactions", self._judge_transactions),
            ("its batch", self._judge_batch),
            ("its answer", self._judge_reply),
            ("its messages", self._judge_messages),
        ):
            try:
                faults += [f"{name}: {fault}" for fault in await part()]
            except (AssertionError, TimeoutError, asyncio.CancelledError, ConnectionError) as error:
                faults.append(f"{name}: {error or type(error).__name__}")
        return faults

    async def judge_at_last(self) -> list[str]:
        """That delayed and timed messages came once, and that nothing else did."""
        for _ in range(self._victim.timer_s // BEAT_S):
            await self._clock.advance(BEAT_S)
            await self._victim.beat()
        self._victim.unread += self._victim.late
        return [f"its messages at last: {fault}" for fault in await self._judge_messages()]

    async def _state(self) -> dict[str, Any]:
        topics = await self._table(admin.GetAllTopicConfig(), "topicConfigTable")
        groups = await self._table(admin.GetAllSubscriptionGroup(), "subscriptionGroupTable")
        offsets = await self._table(admin.GetAllConsumerOffset(), "offsetTable")
        settings = (await self._victim.admin.ask(admin.GetBrokerConfig())).body
        route = (await self._victim.route_admin.ask(namesrv_headers.GetRoute("orders"))).body
        cluster = (await self._victim.route_admin.ask(namesrv_headers.GetBrokerCluster())).body
        value = (await self._victim.route_admin.ask(namesrv_headers.GetKVConfig("space", "key"))).ext_fields()
        return {
            "route": {"orders": route, "cluster": cluster, "value": value},
            "accounts": self._accounts.read_bytes(),
            "users": await self._users(),
            "settings": settings,
            "topics": {name: each for name, each in topics.items() if not _is_open(name)},
            "groups": {name: each for name, each in groups.items() if "theirs" not in name},
            "offsets": {
                name: each
                for name, each in offsets.items()
                if not _is_open(name) and "poppers" not in name  # grpc_victim.py moves these
            },
        }

    async def _users(self) -> list[bytes]:
        """All users and policies; none at a broker with accounts."""
        if not self._has_users:
            return []
        requests = user_headers.ListUsers(), user_headers.ListAcls()
        return [(await self._victim.admin.ask(each)).body for each in requests]

    async def _table(self, request: Request[Any], name: str) -> dict[str, Any]:
        body = (await self._victim.admin.ask(request)).body
        table: dict[str, Any] = json.decode(body, dict[str, Any])[name]
        return table

    async def _compare(self) -> list[str]:
        now = await self._state()
        faults = []
        for kind, before in self._before.items():
            if isinstance(before, dict):
                names = before.keys() | now[kind].keys()
                faults += [
                    f"{kind}: {name} was {before.get(name)}, is {now[kind].get(name)}"
                    for name in names
                    if before.get(name) != now[kind].get(name)
                ]
            elif now[kind] != before:
                faults.append(f"{kind} were changed")
        return faults

    async def _judge_locks(self) -> list[str]:
        """Another client of the owner gets no queue that the owner still holds."""
        wish = client_bodies.LockQueues("locks", "probe@1", [MessageQueue("orders", "broker-0", 0)])
        got = await self._victim.main.ask(headers.LockBatchMq(), wish.encode())
        if client_bodies.LockedQueues.decode(got.body).locked:
            await self._victim.main.ask(headers.UnlockBatchMq(), wish.encode())
            return ["they are free, although their holder did not free them"]
        mine = client_bodies.LockQueues("locks", "owner@1", wish.mq_set).encode()
        again = await self._victim.main.ask(headers.LockBatchMq(), mine)
        return [] if client_bodies.LockedQueues.decode(again.body).locked else ["they are taken"]

    async def _judge_transactions(self) -> list[str]:
        for name, end in (("commit", 8), ("rollback", 12)):
            half = self._victim.targets[name]
            await self._victim.main.ask(
                headers.EndTransaction(
                    "owner-producers",
                    half["tran_state_table_offset"],
                    half["commit_log_offset"],
                    end,
                    half["msg_id"],
                )
            )
        self._victim.unread.append(b"%s committed-%d" % (MARKER, self._victim.round))
        return []

    async def _judge_batch(self) -> list[str]:
        commit = headers.CommitBatch("query", "run-1", self._victim.round)
        answer = await self._victim.main.ask(commit, msgspec.json.encode({"attempts": {"attempt": 1}}))
        self._victim.unread += [b"%s staged-%d-%d" % (MARKER, self._victim.round, each) for each in range(STAGED_COUNT)]
        repeated = answer.header(headers.CommitBatchReply).repeated
        return ["it counts as committed before its commit"] if repeated else []

    async def _judge_reply(self) -> list[str]:
        marks = render({"REPLY_TO_CLIENT": "owner@1", "CORRELATION_ID": self._victim.correlation})
        usual = msgspec.structs.asdict(send_request(REPLY_TOPIC, 0))
        reply = headers.SendReplyV2(**{**usual, "properties": marks, "producer_group": "owner-producers"})
        self._victim.asker.pushes.clear()
        body = b"%s answer %d" % (MARKER, self._victim.round)
        await self._victim.main.ask(reply, body)
        return [] if any(push.body == body for push in self._victim.asker.pushes) else ["it went to another client"]

    async def _judge_messages(self) -> list[str]:
        """Every message of `orders` is the owner's own, and there once."""
        loop = asyncio.get_running_loop()
        limit = loop.time() + SETTLE_S
        found: list[bytes] = []
        while True:
            bodies = [bytes(message.body) for message in await self._pulled()]
            found += [body for body in bodies if ALLOWED not in body]
            if len(found) >= len(self._victim.unread) or loop.time() > limit:
                break
            await self._clock.advance(0.01)
            await asyncio.sleep(0.001)
        wanted, self._victim.unread = self._victim.unread, []
        self._victim.read.update(wanted)
        faults = [f"{body[:60]!r} is strange" for body in found if body not in wanted]
        faults += [f"{body!r} is missing" for body in wanted if body not in found]
        faults += [f"{body!r} is there twice" for body in wanted if found.count(body) > 1]
        return faults

    async def _pulled(self) -> list[StoredMessage]:
        request = pull_request("orders", 0, self._read, consumer_group="owners", max_msg_nums=320)
        answer = await self._victim.main.ask(request, accept=(0, 19, 20, 21))
        messages = [record.decode(view) for view in record.walk(answer.body)]
        if messages:
            self._read = messages[-1].queue_offset + 1
        return messages


def _is_open(name: str) -> bool:
    """Whether attackers may make something with this name, or the broker makes it for any of them."""
    return "theirs" in name or names.is_system_topic(name.partition("@")[0])
