"""Wires, clocks and processes that fail: nothing is lost that was acknowledged, and no two brokers are masters."""

import random
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.crash.network import Begun, NetworkRig, Plan
from tests.crash.not_here import skipped_without
from tests.crash.wires import CUT, demand
from tests.interop.etcd import needs_etcd

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]


async def played(folder: Path, is_elected: bool, *episodes: Plan | None) -> NetworkRig:
    with skipped_without("a network of its own"):
        demand()
    seed = random.randrange(1 << 32)
    with ExitStack() as stack:
        rig = NetworkRig(folder, seed, stack, is_elected=is_elected)
        await rig.play(episodes, print)
    assert rig.tally.violations == [], f"seed {seed}"
    assert len(rig.history.acked) > len(episodes)
    return rig


def cut_off_the_slave(rig: NetworkRig) -> Begun:
    return rig.wires("cut", CUT, rig.slave, [rig.master])


def leave_the_master_its_clients(rig: NetworkRig) -> Begun:
    return rig.wires("cut", CUT, rig.master, [rig.slave, "etcd", "namesrv"])


def halt_the_master(rig: NetworkRig) -> Begun:
    return rig.halt(rig.master)


async def test_what_is_acknowledged_while_the_slave_is_cut_off_is_at_the_slave(tmp_path: Path) -> None:
    await played(tmp_path, False, cut_off_the_slave)


@needs_etcd
async def test_a_master_that_is_cut_off_from_all_but_its_clients_acknowledges_nothing_any_more(
    tmp_path: Path,
) -> None:
    rig = await played(tmp_path, True, leave_the_master_its_clients)
    assert rig.tally.epochs > 1


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("is_elected", "episodes"),
    [
        (False, (None,) * 20),
        pytest.param(True, (halt_the_master, *(None,) * 20), marks=needs_etcd),
    ],
)
async def test_nothing_acknowledged_is_lost_by_whatever_networks_do(
    tmp_path: Path, is_elected: bool, episodes: tuple[Plan | None, ...]
) -> None:
    await played(tmp_path, is_elected, *episodes)
