"""The client without `async`: see `sparrowmq.client.sync`, whose names these are."""

from sparrowmq.client.sync import SyncAdmin as SyncAdmin
from sparrowmq.client.sync import SyncClient as SyncClient
from sparrowmq.client.sync import SyncConsumer as SyncConsumer
from sparrowmq.client.sync import SyncProducer as SyncProducer
from sparrowmq.client.sync import SyncPullConsumer as SyncPullConsumer
from sparrowmq.client.sync import admin as admin
from sparrowmq.client.sync import connect as connect
