"""A broker's transactions over a real store, and producers that keep what they are asked; time is turned by hand."""

from __future__ import annotations

from typing import Any

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.clients import Clients
from sparrowmq.broker.message_writer import Writer
from sparrowmq.broker.offsets import Offsets
from sparrowmq.broker.topics import Topics
from sparrowmq.broker.transactions.open_transactions import TransactionRules
from sparrowmq.broker.transactions.transactions import Transactions
from sparrowmq.metrics.figures import Figures
from sparrowmq.protocol import hosts
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.properties import Properties, render
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import Flush, StoreSettings
from tests.store.stores import copy_cut

BORN = hosts.pack("127.0.0.1:5000")
HALF, OP, LOST = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
GROUP = "payments"
RULES = TransactionRules()


class Producer:
    """The other end of a producer's connection."""

    version, language = 401, "JAVA"
    principal: Any = None
    certificate: str | None = None
    closed = False

    def __init__(self, address="127.0.0.1:5000"):
        self.address, self.host = address, hosts.pack(address)
        self.asked = []

    def call(self, request, body=b"", *, timeout_s=3.0):
        raise AssertionError("a producer is told, and not waited for")

    def close(self):
        raise AssertionError("a producer is not parted with")

    def tell(self, request, body=b""):
        self.asked.append((request, record.decode(body)))

    def on_end(self, callback):
        """It never goes by itself."""


class Transacting:
    """The transactions of one store, and a producer of the group."""

    def __init__(self, path, clock, *, rules=RULES, log_file_size=1 << 20, present=True):
        self.path, self.clock = path, clock
        settings = StoreSettings(
            path, commit_log_file_size=log_file_size, index=False, flush=Flush.ASYNC, store_host=BORN
        )
        self.store = MessageStore.open(settings, clock=clock)
        self.offsets = Offsets(path / "config" / "consumerOffset.json")
        topics = BrokerSettings(name="broker-a", store_path=path, namesrv=("127.0.0.1:1",))
        self.topics = Topics(path / "config" / "topics.json", topics, clock)
        self.clients = Clients(clock)
        self.figures = Figures()
        self.producer = Producer()
        if present:
            self.clients.produce(self.producer, "me", GROUP)
        self.transactions = Transactions(
            self.store,
            self.topics,
            self.offsets,
            self.clients,
            clock,
            rules,
            self.figures,
        )
        self.writer = Writer(self.store, "DefaultCluster", (self.transactions.redirect,))

    def begin(self, body, topic="Orders", queue_id=1, born_ms=None, tries=2, **properties):
        text = render({"UNIQ_KEY": body.decode(), "TRAN_MSG": "true", "PGROUP": GROUP, **properties})
        entry = Entry(topic, queue_id, body, Properties(text), born_ms or self.clock.now_ms(), BORN, 7, 4, tries)
        entry.group = GROUP
        placed = self.writer.put(entry)
        self.store.publish()
        return placed

    def end(self, placed, *, commit, group=GROUP):
        done = self.transactions.end(placed.queue_offset, placed.offset, group, commit=commit)
        self.store.publish()
        return done

    def answer(self, number, *, commit):
        """End what the producer was asked about."""
        request, _ = self.producer.asked[number]
        offsets = request.tran_state_table_offset, request.commit_log_offset
        done = self.transactions.end(*offsets, GROUP, commit=commit)
        self.store.publish()
        return done

    async def after(self, seconds):
        """Some time later, with questions each second; returns what was asked meanwhile."""
        before = len(self.producer.asked)
        for _ in range(seconds):
            await self.clock.advance(1)
            await self.transactions.checks.run_due()
        self.store.publish()
        return self.producer.asked[before:]

    def messages(self, topic="Orders", queue_id=1):
        self.store.publish()
        found, offset = [], 0
        while (read := self.store.read(topic, queue_id, offset, 1000)).count:
            found += [record.decode(each) for view in read.views for each in record.walk(view)]
            offset = read.next_offset
        return found

    def bodies(self, topic="Orders", queue_id=1):
        return [message.body for message in self.messages(topic, queue_id)]

    def figure(self, name):
        return self.figures.value(f"sparrowmq_transaction{name}")

    async def close(self):
        await self.transactions.close()
        await self.offsets.file.save()
        self.store.close()

    def kill(self, into, keep=None):
        """What a disk holds now, up to an offset of the log, in another folder; this one goes on."""
        copy_cut(self.store, into, keep)
        return into
