"""A store, a writer and the delivery of delayed messages, as a broker has them."""

from sparrowmq.broker.delayed.delay import DelayedDelivery, delay_levels
from sparrowmq.broker.message_writer import Writer
from sparrowmq.metrics.figures import Figures
from sparrowmq.protocol import hosts
from sparrowmq.protocol.delay_levels import DelayLevels
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.properties import Properties, render
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import Flush, StoreSettings

BORN = hosts.pack("127.0.0.1:5000")
LEVELS = DelayLevels.parse()


class Delaying:
    """A store of one folder; time is turned by hand."""

    def __init__(self, path, clock, levels=LEVELS, cut_at=None, **changes):
        settings = StoreSettings(path, commit_log_file_size=1 << 20, index=False, flush=Flush.ASYNC, **changes)
        self.clock = clock
        self.store = MessageStore.open(settings, clock=clock, cut_at=cut_at)
        self.figures = Figures()
        redirect = delay_levels(levels, clock)
        self.writer = Writer(self.store, "DefaultCluster", (redirect,))
        self.file = path / "config" / "delayOffset.json"
        self.delayed = DelayedDelivery(self.store, self.writer, redirect, levels, self.file, clock, self.figures)

    def send(self, body, level, topic="Orders", queue_id=0, **properties):
        text = render({"UNIQ_KEY": body.decode(), "DELAY": str(level), **properties})
        entry = Entry(topic, queue_id, body, Properties(text), self.clock.now_ms(), BORN, 7, 0, 2)
        self.writer.put(entry)
        self.store.publish()

    async def save(self):
        self.store.flush()
        await self.delayed.progress.save()

    def kill(self):
        """End as a killed process does: the log's files have all of it, and nothing else is saved."""
        self.store._log.write_out()
        self.store._log.close()
        self.store.flusher.mark.close()
        self.store.queues.files.close()
        self.store._ends.close()
        assert self.store._lock is not None
        self.store._lock.close()

    def delivered(self, topic="Orders", queue_id=0):
        self.store.publish()
        views = self.store.read(topic, queue_id, 0, 10_000, 1 << 24).views
        return [record.decode(each) for view in views for each in record.walk(view)]

    def bodies(self, **where):
        return [message.body for message in self.delivered(**where)]
