"""A query that copies a topic is killed again and again, with all that belongs to it: what the sink promises holds.

`./run chaos spark` and `./run chaos spark_apache` do it as often as one likes.
"""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from tests.interop.servers import APACHE, OURS
from tests.spark.kills.rig import Rig

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(580)]

KILLS, ROWS, SEED = 8, 80_000, 1


@pytest.mark.parametrize(
    ("guarantee", "kind", "brokers"),
    [
        ("exactly_once", OURS, 1),
        ("exactly_once", OURS, 2),
        pytest.param("idempotent", APACHE, 1),
    ],
)
def test_kills_lose_and_double_nothing(tmp_path, guarantee, kind, brokers):
    result = Rig(tmp_path, SEED, guarantee, kind, brokers, print).run(ROWS, KILLS)
    print(result)
    assert (result.lost, result.doubled, sum(result.kills.values())) == ([], [], KILLS)
    assert result.met >= KILLS // 2  # the others came when a batch had just been committed
    if guarantee == "exactly_once":
        assert result.repeated == 0
