"""How much of what ASYNC_FLUSH acknowledged does a power cut take: only the log's end, of half a second at most?"""

from __future__ import annotations

from pathlib import Path

from bench.chaos.outcome import Outcome
from bench.chaos.power import cut


def play(rounds: int, seed: int, folder: Path) -> Outcome:
    """Cut it so often; the file systems take turns. Raises: NotHere."""
    return cut("power_async", "ASYNC_FLUSH", rounds, seed, folder)
