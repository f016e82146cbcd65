"""Bodies about offsets. `test_bodies.py` compares them with the JSON of Java."""

import pytest

from sparrowmq.errors import RemoteProtocolError
from sparrowmq.loop.slices import at_once
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.offset_bodies import ResetOffsets

QUEUE = MessageQueue("Orders", "broker-a", 0)


def test_the_reset_for_cpp_clients_has_rows_instead_of_a_map() -> None:
    reset = ResetOffsets({QUEUE: 5})
    rows = '{"offsetTable":[{"brokerName":"broker-a","offset":5,"queueId":0,"topic":"Orders"}]}'
    assert b"".join(at_once(reset.encoding_for_c())).decode() == rows
    assert ResetOffsets.decode(rows.encode()) == reset


@pytest.mark.parametrize("sent", [b"[]", b"7", b'{"offsetTable":7}', b'{"offsetTable":[7]}'])
def test_a_reset_that_cannot_be_read_is_refused(sent: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        ResetOffsets.decode(sent)
