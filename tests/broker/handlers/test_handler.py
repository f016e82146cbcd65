import pytest

from sparrowmq.broker.handlers.handler import Handler
from sparrowmq.errors import RemoteError
from sparrowmq.protocol.codes import ResponseCode


def test_an_unknown_topic_is_refused_by_its_name(desk):
    with pytest.raises(RemoteError, match=r"topic\[none\] not exist") as refused:
        Handler(desk.shared)._known_topic("none")
    assert refused.value.code == ResponseCode.TOPIC_NOT_EXIST
