"""The room that all clients of the port share."""

import pytest

from sparrowmq.errors import RemoteError
from sparrowmq.mqproxy.limits import GUARANTEED_BYTES, MAX_BYTES, Capacity
from sparrowmq.protocol.codes import ResponseCode


def test_no_more_connections_than_there_are_descriptors_for():
    capacity = Capacity(2)
    for _ in range(2):
        assert capacity.problem == ""
        capacity.add_link()
    with pytest.raises(RemoteError, match="2 connections to brokers") as refused:
        capacity.add_link()
    assert refused.value.code == ResponseCode.SYSTEM_BUSY and "2 connections" in capacity.problem
    capacity.remove_link()
    capacity.add_link()


def test_a_client_with_few_bytes_gets_room_in_any_case():
    capacity = Capacity(1)
    capacity.check_bytes(MAX_BYTES, 0)
    capacity.held_bytes = MAX_BYTES
    capacity.check_bytes(GUARANTEED_BYTES, 0)
    for size, own_bytes in ((GUARANTEED_BYTES + 1, 0), (1, GUARANTEED_BYTES)):
        with pytest.raises(RemoteError, match="mqproxy is busy"):
            capacity.check_bytes(size, own_bytes)
