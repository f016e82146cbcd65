"""Does a lake of many topics lose or double a row, or cost more with time, when it is killed?

The topics become Parquet, Delta and Iceberg tables in turn, in folders (tests/spark/lakehouse/lake_fire.py). A round is
a life of the lake, which ends with a kill -9 of its process, its Java and its workers. SPARROWMQ_TOPICS is the number
of topics, SPARROWMQ_RATE the messages a second, and SPARROWMQ_LIFE_S how long a lake lives, a third more or less.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from bench.chaos.outcome import Outcome
from tests.spark.lakehouse.lake_fire import LakeFire

_DEFAULTS: Final = {"TOPICS": 12, "RATE": 200, "LIFE_S": 60}


def play(rounds: int, seed: int, folder: Path) -> Outcome:
    """Kill so often."""
    outcome = Outcome("lake", seed)
    given = {name: float(os.environ.get(f"SPARROWMQ_{name}", value)) for name, value in _DEFAULTS.items()}
    fire = LakeFire(folder, int(given["TOPICS"]), given["RATE"], seed)
    fire.play(rounds, given["LIFE_S"])
    outcome.rounds, outcome.acked, outcome.maybe = rounds, fire.sent, fire.maybe
    outcome.note(fire.wrong())
    outcome.more = {"topics": int(given["TOPICS"]), "rows": fire.rows, "lives": fire.lives}
    return outcome
