"""Removes messages from brokers, as their retention does."""

from __future__ import annotations

import os
import time
from dataclasses import replace

from sparrowmq.client import blocking_client as sync
from sparrowmq.store.retention import Cleaning
from sparrowmq.testing.background import BackgroundCluster
from tests.spark.test_with_spark import DEADLINE_S, Topic

# Log files that a few messages fill: retention removes whole files.
SMALL_FILES = {"commit_log_file_bytes": 64 << 10}


def expire(cluster: BackgroundCluster, topic: Topic) -> None:
    """Let all messages of a topic expire; another topic fills their log file, which retention leaves otherwise."""
    ends = topic.ends()
    with sync.connect(cluster.namesrv) as mq:
        mq.admin.create_topic("filling", queues=1, exist_ok=True)
        for _ in range(8):
            mq.send("filling", os.urandom(16 << 10))
    deadline = time.monotonic() + DEADLINE_S
    while topic.begins() != ends:
        assert time.monotonic() < deadline, (topic.begins(), ends)
        cluster.run(_expire(cluster))
        time.sleep(0.05)


async def _expire(cluster: BackgroundCluster) -> None:
    for broker in cluster.cluster.brokers:
        broker.store.settings = replace(broker.store.settings, retention_hours=0)
        broker.store.retention.request(Cleaning.FILES)
