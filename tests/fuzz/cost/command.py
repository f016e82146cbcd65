"""`./run fuzz --cost [--requests N] [--seed S] [--codes 34,310]`, and `--replay FILE` to repeat what a run found."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sparrowmq.protocol.codes import RequestCode
from tests.fuzz.cost.genes import CODES, frames_of
from tests.fuzz.cost.rig import Rig
from tests.fuzz.cost.search import REPEATS, Dear, Search

FOLDER: Final = Path("build/fuzz-cost")


def search(seed: int, requests: int, codes: str, progress: Callable[[str, int, int], None]) -> list[str]:
    """Search for dear requests. Returns those that break a limit, as text."""
    began = time.monotonic()

    def told(dear: Dear, path: Path) -> None:
        print(
            f"{time.monotonic() - began:6.0f} s  {dear}; repeat it: ./run fuzz --cost --replay {path}",
            flush=True,
        )

    chosen = tuple(int(code) for code in codes.split(",")) if codes else CODES
    found = Search(seed, FOLDER, told, chosen)
    found.run(requests, lambda done: progress("cost", done, requests))
    for code, corpus in found.corpora.items():
        if corpus.by_step:
            slow, dear = corpus.by_step[0], corpus.by_byte[0]
            print(
                f"  {code:>6} {RequestCode(code).name:36} longest step {slow.cost.step_s * 1e3:7.2f} ms"
                f" ({slow.cost.size:>9,} bytes), {dear.of_a_byte * 1e6:6.2f} us a byte ({dear.cost.size:>9,} bytes)"
            )
    print(f"{found.requests:,} requests in {time.monotonic() - began:.0f} s", flush=True)
    return [str(dear) for dear in found.found]


def replay(path: Path) -> list[str]:
    """Measure the requests of a file, some times on a new broker."""
    genes = json.loads(path.read_text())
    with Rig() as rig:
        costs = [rig.measure(frames_of(genes)) for _ in range(REPEATS)]
    for cost in costs:
        print(f"  {Dear(genes, cost)}")
    dear = Dear(genes, min(costs, key=lambda cost: cost.step_s))
    return [str(dear)] if dear.breaks else []
