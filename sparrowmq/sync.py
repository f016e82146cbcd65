"""The client without `async`: the names of `client.blocking_client` and of `admin.blocking_admin`."""

from sparrowmq.admin.blocking_admin import SyncAdmin as SyncAdmin
from sparrowmq.admin.blocking_admin import admin as admin
from sparrowmq.client.blocking_client import SyncClient as SyncClient
from sparrowmq.client.blocking_client import SyncConsumer as SyncConsumer
from sparrowmq.client.blocking_client import SyncProducer as SyncProducer
from sparrowmq.client.blocking_client import SyncPullConsumer as SyncPullConsumer
from sparrowmq.client.blocking_client import SyncSimpleConsumer as SyncSimpleConsumer
from sparrowmq.client.blocking_client import SyncTransaction as SyncTransaction
from sparrowmq.client.blocking_client import connect as connect
