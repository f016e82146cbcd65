"""The demo's cluster: one name server and one broker that confirms nothing before it is on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.messages.message import Perm
from sparrowmq.protocol.requests.admin_headers import UpdateAndCreateTopic
from sparrowmq.protocol.requests.headers import GetMaxOffset
from sparrowmq.remoting.pool import Pool
from sparrowmq.store.store_settings import Flush
from sparrowmq.testing.background import BackgroundCluster

LOG_FILE_BYTES = 256 << 20  # all flights go into one file


class DemoCluster(BackgroundCluster):
    """As a context manager: a cluster that keeps its messages below a folder."""

    def __init__(self, path: Path, **settings: Any) -> None:
        super().__init__(
            path,
            flush=Flush.SYNC,
            commit_log_file_bytes=LOG_FILE_BYTES,
            consume_queue_file_bytes=300_000 * 20,
            **settings,
        )

    @property
    def broker(self) -> str:
        return self.cluster.brokers[0].address

    def create_topic(self, topic: str, queues: int) -> None:
        """Return when the topic is in the routes."""
        self.run(self._create_topic(topic, queues))

    def stored(self, topic: str, queues: int) -> int:
        return self.run(self._stored(topic, queues))

    async def _create_topic(self, topic: str, queues: int) -> None:
        request = UpdateAndCreateTopic(
            topic=topic,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=Perm.READ | Perm.WRITE,
            default_topic=topic,
            topic_filter_type="SINGLE_TAG",
        )
        pool = Pool(SystemClock())
        try:
            await (await pool.session(self.broker)).call(request)
        finally:
            pool.close()

    async def _stored(self, topic: str, queues: int) -> int:
        pool = Pool(SystemClock())
        try:
            session = await pool.session(self.broker)
            answers = [await session.call(GetMaxOffset(topic=topic, queue_id=queue)) for queue in range(queues)]
            return sum(answer.header.offset for answer in answers)
        finally:
            pool.close()
