"""Orders to a group at brokers that are none. At a real group: tests/broker/failover."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparrowmq import Admin
from sparrowmq.errors import BrokerUnreachable, NoBroker, RemoteError
from tests.broker.replication.pairs import pair


async def test_brokers_with_fixed_roles_refuse_and_unknown_ones_are_told(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await both.start("master")
        async with Admin(both.namesrv) as admin:
            ((name, place),) = [(each.name, each) for each in await admin.brokers()]
            with pytest.raises(RemoteError, match="enableControllerMode is not set"):
                await admin.hand_over(name)
            with pytest.raises(BrokerUnreachable, match="no broker that answers has this brokerId"):
                await admin.elect(name, 2)
            with pytest.raises(NoBroker, match="there is no broker 'other'"):
                await admin.elect("other", 1)
        assert place.master is not None
