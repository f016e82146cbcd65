"""The room that all clients of the remoting port share."""

import pytest

from sparrowmq.errors import RemoteError
from sparrowmq.mqproxy.limits import FEW_BYTES, MOST_BYTES, Room
from sparrowmq.protocol.codes import ResponseCode


def test_no_more_connections_than_there_are_descriptors_for():
    room = Room(2)
    for _ in range(2):
        room.demand_link()
        assert room.problem == ""
        room.links += 1
    with pytest.raises(RemoteError, match="2 connections to brokers") as refused:
        room.demand_link()
    assert refused.value.code == ResponseCode.SYSTEM_BUSY and "2 connections" in room.problem
    room.links -= 1
    room.demand_link()


def test_a_client_with_few_bytes_gets_room_in_any_case():
    room = Room(1)
    room.demand_bytes(MOST_BYTES, 0)
    room.held_bytes = MOST_BYTES
    room.demand_bytes(FEW_BYTES, 0)
    for size, own_bytes in ((FEW_BYTES + 1, 0), (1, FEW_BYTES)):
        with pytest.raises(RemoteError, match="mqproxy is busy"):
            room.demand_bytes(size, own_bytes)
