from sparrowmq.client.sending.send_hooks import SendHooks
from sparrowmq.protocol.messages.message import Message


def test_by_default_nothing_happens():
    SendHooks().before_send(Message("t", b"x"))
    SendHooks().after_send(Message("t", b"x"), None)
