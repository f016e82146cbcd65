"""Masters of three members that die beside changes of their state, and two in a row."""

import random
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.chaos.failover import SAFEST
from tests.crash.deaths import die_beside_changes, die_twice
from tests.crash.failover import FailoverRig
from tests.crash.state_history import StateHistory
from tests.interop.etcd import needs_etcd

pytestmark = [needs_etcd, pytest.mark.timeout(300), pytest.mark.slow]


async def test_no_acknowledged_change_is_forgotten_and_no_delayed_message_doubled(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    with ExitStack() as stack:
        rig = FailoverRig(tmp_path, seed, stack, 3, settings=SAFEST | {"masterLeaseTime": 2})
        history = StateHistory(rig.master, seed)
        await die_beside_changes(rig, history, 2)
        assert rig.tally.violations == [], f"seed {seed}"
        assert history.acknowledged > 20 and history.delayed


async def test_when_a_successor_dies_at_its_election_the_third_leads(tmp_path: Path) -> None:
    with ExitStack() as stack:
        rig = FailoverRig(tmp_path, 1, stack, 3, settings={"masterLeaseTime": 2})
        await die_twice(rig, 1)
        assert rig.tally.gaps_s[0] < 30
