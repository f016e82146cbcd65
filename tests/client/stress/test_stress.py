"""Two short runs of the stress: what befalls groups, and what befalls the cluster. `./run stress` takes minutes.

One run is looked at by several tests, each for one promise, so that each broken one is seen by itself.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.client.stress import checker
from tests.client.stress.checker import KINDS, Findings
from tests.client.stress.plan import CLUSTER, MEMBERS, Act, plan
from tests.client.stress.rig import Rig, sentences

pytestmark = pytest.mark.slow  # tests/client has each promise by itself

SEED = 20_261
SENDING_S = 6.0
QUIET_S = 15.0  # so long queues of a broker may belong to nobody, as `checker.ROUTED_S` explains
ACTS = {"members": MEMBERS, "cluster": CLUSTER}

Run = tuple[Rig, Findings]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Both side by side: most of the time they wait."""

    async def run_all() -> list[Run]:
        return await asyncio.gather(*(run(tmp_path_factory.mktemp(name), acts) for name, acts in ACTS.items()))

    return dict(zip(ACTS, asyncio.run(run_all()), strict=True))


async def run(folder: Path, acts: tuple[Act, ...]) -> Run:
    rig = Rig(folder, SEED, QUIET_S, lambda line: None)
    found = await rig.run(plan(SEED, SENDING_S, acts, can_wait=False), SENDING_S)
    return rig, found


@pytest.mark.parametrize("name", ACTS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_promise_is_kept(runs: dict[str, Run], name: str, kind: str) -> None:
    rig, found = runs[name]
    print(f"seed {SEED}", *sentences(rig, found), sep="\n")
    broken = [violation.what for violation in found.violations if violation.kind == kind]
    assert not broken, f"seed {SEED}: {KINDS[kind]}, but {len(broken)} times not:\n" + "\n".join(broken[:5])


@pytest.mark.parametrize("name", ACTS)
def test_much_happened(runs: dict[str, Run], name: str) -> None:
    """Or the promises would be easy to keep."""
    rig, found = runs[name]
    befell = {incident.what for incident in rig.ledger.incidents}
    assert len(rig.ledger.acknowledged) > 500
    assert found.causes[checker.FAILED_HANDLER] > 10
    assert len(befell) >= 3
