"""The staged batches of one store, without a broker that serves."""

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.message_writer import Writer
from sparrowmq.broker.staging.staged_batches import Staging
from sparrowmq.broker.staging.writers import Source
from sparrowmq.broker.topics import Topics
from sparrowmq.loop.slices import at_once
from sparrowmq.metrics.figures import Figures
from sparrowmq.protocol import hosts
from sparrowmq.protocol.messages import batch as batches
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.properties import Properties
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import Flush, StoreSettings
from tests.store.stores import copy_cut

BORN = hosts.pack("127.0.0.1:5000")


def parts(*bodies):
    return [BatchPart(body.encode(), f"UNIQ_KEY\x01id-{body}\x02TAGS\x01t\x02".encode(), 7) for body in bodies]


class Broker:
    """The staged batches of one store."""

    def __init__(self, path, clock, log_file_size=1 << 20, cluster="c"):
        self.path, self.clock, self.log_file_size = path, clock, log_file_size
        settings = StoreSettings(
            path, commit_log_file_size=log_file_size, index=False, flush=Flush.ASYNC, store_host=BORN
        )
        self.store = MessageStore.open(settings, clock=clock)
        topics = BrokerSettings(name="broker-a", store_path=path, namesrv=("127.0.0.1:1",))
        self.topics = Topics(path / "config" / "topics.json", topics, clock)
        self.figures = Figures()
        self.writer = Writer(self.store, cluster, ())
        file = path / "config" / "stagedBatches.json"
        self.staging = Staging(self.store, self.writer, self.topics, file, clock, self.figures)

    def stage(self, source, attempt, number, *bodies, queue_id=0):
        given = parts(*bodies)
        entry = Entry("T", queue_id, batches.encode(given), Properties(), self.clock.now_ms(), BORN)
        at_once(self.staging.check(entry, batches.places(bytes(entry.body))))
        return self.staging.stage(source, attempt, number, entry)

    def commit(self, source, **attempts):
        return self.staging.commit(source, attempts).is_repeated

    def publish(self):
        while not self.staging.publishing.publish_some():
            pass

    def messages(self, topic="T", queue_id=0):
        self.store.publish()
        found, offset = [], self.store.queues.obtain(topic, queue_id).min_offset
        while (read := self.store.read(topic, queue_id, offset, 1000)).count:
            found += [record.decode(each) for view in read.views for each in record.walk(view)]
            offset = read.next_offset
        return found

    def bodies(self, queue_id=0):
        return [message.body.decode() for message in self.messages("T", queue_id)]

    def ends(self):
        """Behind each record of the log."""
        self.store.publish()
        everything = [message for queue in self.store.queues for message in self.messages(queue.topic, queue.queue_id)]
        return sorted(message.physical_offset + message.store_size for message in everything)

    def kill(self, into, keep=None):
        """What a disk holds now, up to an offset of the log, in another folder."""
        copy_cut(self.store, into, keep)
        return Broker(into, self.clock, self.log_file_size)


def source(batch=0, run="run-1", writer="query"):
    return Source(writer, run, batch)
