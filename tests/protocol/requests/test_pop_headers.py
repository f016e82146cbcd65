import base64

import pytest

from sparrowmq.protocol.requests import pop_headers as pop
from sparrowmq.protocol.wire.header import Header
from tests.protocol.requests.wire_names import comes_back, fields_of, required_of

PLACE = "consumerGroup topic queueId"
POPPED = "startOffsetInfo msgOffsetInfo orderCountInfo"
WISHED = "expType exp order attemptId"
# With javap from rocketmq-remoting 5.4.0: the fields that are CFNotNull, and the others, before those of ours alone.
JAVA = [
    (pop.PopMessage, f"{PLACE} maxMsgNums invisibleTime pollTime bornTime initMode", f"{WISHED} wantsCounts"),
    (pop.PopMessageReply, "", f"popTime invisibleTime reviveQid restNum {POPPED} mostMsgNums queueCounts"),
    (pop.AckMessage, f"{PLACE} extraInfo offset", ""),
    (pop.BatchAckMessage, "", ""),
    (pop.BatchAckReply, "", "leftOut"),
    (pop.ChangeInvisibleTime, f"{PLACE} extraInfo offset invisibleTime", ""),
    (pop.ChangeInvisibleTimeReply, "popTime invisibleTime reviveQid", "extraInfo"),
    (pop.PeekMessage, f"{PLACE} maxMsgNums", ""),
    (pop.Notification, f"{PLACE} pollTime bornTime", "order attemptId"),
    (pop.NotificationReply, "hasMsg", "pollingFull"),
    (pop.Polling, PLACE, ""),
    (pop.PollingReply, "pollingNum", ""),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "required", "others"), JAVA, ids=lambda value: getattr(value, "__name__", None))
def test_a_header_has_the_fields_of_java(kind: type[Header], required: str, others: str) -> None:
    assert required_of(kind) == set(required.split())
    assert fields_of(kind) == {*required.split(), *others.split()}
    assert comes_back(kind)


def test_a_batch_of_acks_has_the_names_and_the_bits_of_java() -> None:
    bits = base64.b64encode(bytes([0b101])).decode()
    ack = pop.BatchAck("g", "t", "0", 7, 1, 2, 1_795_144_375_341, 30_000, bits)
    sent = pop.BatchAcks(broker_name="broker-a", acks=[ack]).encode()
    assert sent == (
        b'{"acks":[{"b":"BQ==","c":"g","it":30000,"pt":1795144375341,"q":1,"r":"0","rq":2,"so":7,"t":"t"}],'
        b'"brokerName":"broker-a"}'
    )
    assert pop.BatchAcks.decode(sent).acks == [ack]
