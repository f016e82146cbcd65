"""Does idempotent lose a row at Apache's broker, or double one that has another id, under the same kills?"""

from __future__ import annotations

from pathlib import Path

from bench.chaos.outcome import Outcome
from bench.chaos.spark import kill, tell
from sparrowmq.spark.options import IDEMPOTENT
from tests.interop.servers import APACHE
from tests.spark.kills.rig import Rig


def play(rounds: int, seed: int, folder: Path) -> Outcome:
    """Kill so often."""
    return kill("spark_apache", Rig(folder, seed, IDEMPOTENT, APACHE, 1, tell), rounds, seed)
