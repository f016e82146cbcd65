"""`./run fuzz --handles [--cases N]`: a stranger forges receipt handles, transaction ids and recall handles.

An owner holds some of each kind at a broker with the gRPC port: received messages, open transactions, delayed
messages. The stranger knows all of their parts but one, which it guesses. It calls the gRPC port and sends the same
requests by the remoting protocol. No forged receipt or transaction may be accepted, and in the end each of the owner's
must still work. As at Apache's brokers, a recall is accepted without a search for its message: what counts is that the
delayed messages arrive.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from sparrowmq import connect
from sparrowmq.errors import RemoteError
from sparrowmq.grpc.send_methods import TransactionId
from sparrowmq.grpc.wire_types import ClientType, MessageType, Resolution
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.messages.recalls import RecallHandle
from sparrowmq.protocol.receipt_handle import ReceiptHandle
from sparrowmq.protocol.requests.headers import EndTransaction, RecallMessage
from sparrowmq.protocol.requests.pop_headers import AckMessage, ChangeInvisibleTime
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.session import Session
from sparrowmq.testing import Cluster
from tests.broker.grpc_port.grpc_client import GrpcClient, channel_to
from tests.grpc.scripted import named, outgoing

OK: Final = 20000
BROKER: Final = "broker-0"
RECALL: Final = "recall"
_OWNED: Final = 8  # of each kind
_DUE_S: Final = 20.0  # The delayed messages are due some time after the last guess.
_CASE_S: Final = 0.003
_LATE_S: Final = 30.0
_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000
_COMMIT: Final = 8
_PATIENCE_S: Final = 60.0
_AT_ONCE: Final = 16
_NAMES: Final = {"topic": named("orders"), "group": named("g")}


def attack(seed: int, cases: int, progress: Callable[[int], object] = lambda _: None) -> list[str]:
    """Forge so many handles. Returns what was accepted, and what the owner can no longer do, as text."""
    with tempfile.TemporaryDirectory(prefix="sparrowmq-handles-") as store:
        return asyncio.run(_attack(Path(store), seed, cases, progress))


async def _attack(store: Path, seed: int, cases: int, progress: Callable[[int], object]) -> list[str]:
    pool = Pool(SystemClock())
    async with Cluster(store, grpc_port=0) as cluster, connect(cluster.namesrv) as mq:
        await mq.admin.create_topic("orders", queues=2)
        broker = cluster.brokers[0]
        async with channel_to(broker.grpc_address) as channel:
            owner = GrpcClient(channel, "owner")
            due_s = int(time.time() + _DUE_S + cases * _CASE_S)
            owned = await _own(owner, due_s)
            stranger = Stranger(GrpcClient(channel, "stranger"), await pool.session(broker.address))
            broken = await _guess_all(stranger, Forger(owned, seed), cases, progress)
            broken += await _still_works(owner, owned, due_s)
    pool.close()
    return broken


async def _own(owner: GrpcClient, due_s: int) -> Owned:
    await (await owner.telemetry(ClientType.SIMPLE_CONSUMER, group="g"))()
    await owner.receive(wait_ms=0)
    for _ in range(_OWNED):
        await owner.call("SendMessage", messages=[outgoing(body=b"plain")])
    receipts: list[str] = []
    while len(receipts) < _OWNED:
        _, got = await owner.receive(invisible_ms=_HOUR_MS)
        receipts += [each.system_properties.receipt_handle for each in got]
    transactions = [(await _sent(owner, MessageType.TRANSACTION)).transaction_id for _ in range(_OWNED)]
    recalls = [(await _sent(owner, MessageType.DELAY, due_s)).recall_handle for _ in range(_OWNED)]
    return Owned(receipts, transactions, recalls)


async def _sent(owner: GrpcClient, kind: MessageType, due_s: int = 0) -> Any:
    made = outgoing(body=kind.name.encode(), message_id=f"01{random.randbytes(16).hex().upper()}", message_type=kind)
    if due_s:
        made.system_properties.delivery_timestamp.seconds = due_s
    return (await owner.call("SendMessage", messages=[made])).entries[0]


async def _guess_all(stranger: Stranger, forger: Forger, cases: int, progress: Callable[[int], object]) -> list[str]:
    broken: list[str] = []
    tried: Counter[str] = Counter()
    guesses = forger.guesses(cases)
    for some in iter(lambda: list(islice(guesses, _AT_ONCE)), []):
        tries = [(guess, each) for guess in some for each in stranger.tries(guess)]
        accepted = await asyncio.gather(*(each() for _, each in tries))
        broken += [
            f"accepted: {guess}"
            for (guess, _), was in zip(tries, accepted, strict=True)
            if was and guess.kind != RECALL
        ]
        tried.update(guess.kind for guess in some)
        progress(tried.total())
    print("  " + ", ".join(f"{count:,} {kind} handles" for kind, count in tried.items()))
    return broken


async def _still_works(owner: GrpcClient, owned: Owned, due_s: int) -> list[str]:
    """Use the owner's handles, and wait for the delayed messages of which only the first was recalled by the owner."""
    broken = [f"visible too early: {body!r}" for body in await _bodies(owner)]
    uses = [(ack, owned.receipts), (end, owned.transactions), (recall, owned.recalls[:1])]
    for use, texts in uses:
        broken += [f"{use.__name__} is refused: {text}" for text in texts if not await use(owner, text)]
    wanted = Counter({b"TRANSACTION": _OWNED, b"DELAY": _OWNED - 1})
    bodies: Counter[bytes] = Counter()
    while bodies.total() < wanted.total() and time.time() < due_s + _LATE_S:
        bodies.update(await _bodies(owner))
    if bodies != wanted:
        broken.append(f"in the end the owner receives {dict(bodies)}, not {dict(wanted)}")
    return broken


async def _bodies(owner: GrpcClient) -> list[bytes]:
    _, got = await owner.receive(wait_ms=1000, invisible_ms=_HOUR_MS)
    return [each.body for each in got]


class Owned(NamedTuple):
    """The handles of the owner."""

    receipts: list[str]
    transactions: list[str]
    recalls: list[str]


class Guess(NamedTuple):
    """A forged handle, by what it was made from."""

    kind: str
    text: str


class Forger:
    """Makes handles that the broker never gave out."""

    def __init__(self, owned: Owned, seed: int) -> None:
        self._owned = owned
        self._chance = random.Random(seed)
        self._genuine = {text for texts in owned for text in texts}

    def guesses(self, count: int) -> Iterator[Guess]:
        makers = {"receipt": self._receipt, "transaction": self._transaction, RECALL: self._recall}
        for number in range(count):
            kind = list(makers)[number % len(makers)]
            text = makers[kind]()
            if text not in self._genuine:
                yield Guess(kind, text)

    def _receipt(self) -> str:
        """The random number is always another one; half of the handles have one more wrong part."""
        handle = ReceiptHandle.parse(self._chance.choice(self._owned.receipts))
        forged = handle._replace(revive_queue=self._other(handle.revive_queue))
        wrong = self._chance.choice(("queue_offset", "commit_log_offset", "pop_time_ms", "start_offset", *" " * 4))
        if wrong != " ":
            forged = forged._replace(**{wrong: self._other(getattr(handle, wrong))})
        return str(forged)

    def _transaction(self) -> str:
        known = TransactionId.parse(self._chance.choice(self._owned.transactions))
        wrong = self._chance.choice(("log_offset", "unique_id", "broker_name"))
        return str(known._replace(**{wrong: self._other(getattr(known, wrong))}))

    def _recall(self) -> str:
        """A wrong time is a minute away: a recall names its message by topic and id, and has effect near its time."""
        known = RecallHandle.parse(self._chance.choice(self._owned.recalls))
        wrong = self._chance.choice(("due_ms", "unique_id", "topic", "broker_name"))
        other: Any = known.due_ms + _MINUTE_MS if wrong == "due_ms" else self._other(getattr(known, wrong))
        return str(known._replace(**{wrong: other}))

    def _other(self, value: Any) -> Any:
        """A number that is near or far, or a word with another character."""
        if isinstance(value, int):
            near = value + self._chance.choice((-1, 1)) * self._chance.randrange(1, 1000)
            return self._chance.choice((abs(near), self._chance.randrange(1 << 31), 1 << 62))
        at = self._chance.randrange(len(value))
        return value[:at] + ("0" if value[at] != "0" else "1") + value[at + 1 :]


class Stranger:
    """Tries forged handles at both ports. A call returns whether the broker accepted it."""

    def __init__(self, client: GrpcClient, session: Session) -> None:
        self._client = client
        self._session = session

    def tries(self, guess: Guess) -> list[Callable[[], Awaitable[bool]]]:
        """What can be done with a handle: each is one request."""
        text = guess.text
        if guess.kind == RECALL:
            return [lambda: self._recall(text), lambda: self._remote(RecallMessage("orders", text, "p"))]
        if guess.kind == "transaction":
            names_broker = TransactionId.parse(text).broker_name == BROKER
            remote = [lambda: self._remote(_ending(text))] if names_broker else []
            return [lambda: self._end(text), *remote]
        acks, change = _acking(text)
        return [
            lambda: self._ack(text),
            lambda: self._change(text),
            lambda: self._remote(acks),
            lambda: self._remote(change),
        ]

    async def _ack(self, text: str) -> bool:
        return await ack(self._client, text)

    async def _change(self, text: str) -> bool:
        change = {"receipt_handle": text, "message_id": "x"}
        return bool((await self._client.call("ChangeInvisibleDuration", **_NAMES, **change)).status.code == OK)

    async def _end(self, text: str) -> bool:
        return await end(self._client, text)

    async def _recall(self, text: str) -> bool:
        return await recall(self._client, text)

    async def _remote(self, request: Any) -> bool:
        try:
            await self._session.call(request, timeout_s=_PATIENCE_S)
        except RemoteError:
            return False
        return True


async def ack(client: GrpcClient, text: str) -> bool:
    answer = await client.call("AckMessage", **_NAMES, entries=[{"message_id": "x", "receipt_handle": text}])
    return bool(answer.status.code == OK)


async def end(client: GrpcClient, text: str) -> bool:
    fields = {"topic": named("orders"), "transaction_id": text, "resolution": Resolution.COMMIT}
    return bool((await client.call("EndTransaction", **fields)).status.code == OK)


async def recall(client: GrpcClient, text: str) -> bool:
    return bool((await client.call("RecallMessage", topic=named("orders"), recall_handle=text)).status.code == OK)


def _acking(text: str) -> tuple[AckMessage, ChangeInvisibleTime]:
    handle = ReceiptHandle.parse(text)
    place = ("g", "orders", handle.queue_id, text, handle.queue_offset)
    return AckMessage(*place), ChangeInvisibleTime(*place, 0)


def _ending(text: str) -> EndTransaction:
    known = TransactionId.parse(text)
    return EndTransaction(
        "orders",  # a gRPC client's topic is its producer group
        known.state_offset,
        known.log_offset,
        _COMMIT,
        known.unique_id,
        transaction_id=known.unique_id,
    )
