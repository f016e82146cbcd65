import sparrowmq
import sparrowmq.client.blocking_client
import sparrowmq.sync


def test_the_blocking_client_is_found_in_both_places():
    for name in (
        "connect",
        "SyncClient",
        "SyncConsumer",
        "SyncProducer",
        "SyncPullConsumer",
        "SyncTransaction",
    ):
        assert getattr(sparrowmq.sync, name) is getattr(sparrowmq.client.blocking_client, name)
