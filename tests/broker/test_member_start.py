"""The start of a member's broker, by itself. Its repair from other members: replication/test_peer_repair.py."""

from __future__ import annotations

import socket
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from sparrowmq.broker.broker_settings import BrokerRole, BrokerSettings
from sparrowmq.broker.failover.own_epoch import RECOVERING, OwnEpoch
from sparrowmq.broker.failover.term import Term
from sparrowmq.broker.member_start import MemberStart
from sparrowmq.errors import ConfigError
from sparrowmq.loop.clock import SystemClock


def leave_open(settings: BrokerSettings) -> None:
    """As a killed process leaves its store."""
    Path(settings.store(1).layout.abort).touch()


async def no_peers() -> list[str]:
    return []


async def test_a_store_that_was_closed_in_order_is_in_no_doubt_and_another_one_is_while_it_recovers(
    tmp_path: Path,
) -> None:
    settings = BrokerSettings(
        port=0, ha_port=0, fast_port=0, store_path=tmp_path, broker_id=2, role=BrokerRole.SLAVE
    )
    own = OwnEpoch.load(settings.config_path)
    start = MemberStart(own, SystemClock(), None, no_peers)
    async with AsyncExitStack() as stack:
        broker = await start.broker(stack, settings, Term(2, 0))
        assert broker.store.end == 0 and own.doubt == ""
    leave_open(settings)
    async with AsyncExitStack() as stack:
        taken = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        with pytest.raises(ConfigError):
            await start.broker(stack, replace(settings, port=taken.getsockname()[1]), Term(2, 0))
        assert OwnEpoch.load(settings.config_path).doubt == RECOVERING
