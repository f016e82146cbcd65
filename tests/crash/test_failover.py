"""Masters that are killed or halted under load: nothing is lost that they and their slaves in sync had acknowledged."""

import asyncio
import random
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.crash.failover import FailoverRig, die_and_check
from tests.interop.etcd import needs_etcd

pytestmark = [needs_etcd, pytest.mark.timeout(300), pytest.mark.slow]


@pytest.mark.parametrize(
    ("ways", "members", "lease_s"),
    [
        (("killed", "halted"), 2, 2),
        pytest.param(("restarted", "killed", "halted", "killed"), 3, 2, marks=pytest.mark.nightly),
    ],
)
async def test_nothing_acknowledged_is_lost_when_masters_die(
    tmp_path: Path, ways: tuple[str, ...], members: int, lease_s: int
) -> None:
    seed = random.randrange(1 << 32)
    with ExitStack() as stack:
        rig = FailoverRig(tmp_path, seed, stack, members, pause_s=0.02, settings={"masterLeaseTime": lease_s})
        await die_and_check(rig, ways)
        assert rig.tally.violations == [], f"seed {seed}"
        assert rig.ledger.acked > 200 * len(ways)
        assert max(rig.tally.gaps_s) < 20, rig.tally.gaps_s


@pytest.mark.parametrize("rounds", [2, pytest.param(100, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)])])
async def test_the_third_member_leads_after_two_deaths(tmp_path: Path, rounds: int) -> None:
    with ExitStack() as stack:
        rig = FailoverRig(tmp_path, 1, stack, 3, settings={"masterLeaseTime": 2})
        for number in rig.numbers:
            await asyncio.to_thread(rig.start, number)
        await rig.all_in_sync()
        times = [await rig.double_death() for _ in range(rounds)]
    print(f"the third member led after {max(times):.1f} s at most, {sorted(times)[rounds // 2]:.1f} s in the median")
    assert max(times) < 30
