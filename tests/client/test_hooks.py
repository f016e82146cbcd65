from sparrowmq.client.consuming.consume_hooks import ConsumeHooks
from sparrowmq.client.hooks import Hooks
from sparrowmq.client.sending.send_hooks import SendHooks


def test_one_object_sees_what_is_sent_and_what_is_consumed():
    assert isinstance(Hooks(), SendHooks) and isinstance(Hooks(), ConsumeHooks)
