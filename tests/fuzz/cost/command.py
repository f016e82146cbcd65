"""`./run fuzz --cost [--requests N] [--seed S] [--codes 34,310]`, and `--replay FILE` to repeat what a run found.

Two processes search, each with servers of its own. One request of 20 goes to a name server.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from sparrowmq.protocol.codes import RequestCode
from tests.fuzz.cost.genes import CODES, NAMESRV_CODES, frames_of
from tests.fuzz.cost.rig import Rig
from tests.fuzz.cost.search import REPEATS, Corpus, Dear, Search

FOLDER: Final = Path("build/fuzz-cost")
WORKERS: Final = 2
NAMESRV_SHARE: Final = 20
TOLD_EACH_S: Final = 60.0


class _Outcome(NamedTuple):
    found: list[str]
    corpora: dict[int, Corpus]
    requests: int
    cases: int
    once: str


def search(seed: int, requests: int, codes: str, progress: Callable[[str, int, int], None]) -> list[str]:
    """Search for dear requests. Returns those that break a limit, as text."""
    began = time.monotonic()
    chosen = {int(code) for code in codes.split(",")} if codes else {*CODES, *NAMESRV_CODES}
    few = requests // NAMESRV_SHARE if chosen & {*CODES} else requests
    shares = [(NAMESRV_CODES, few, True)] if chosen & {*NAMESRV_CODES} else []
    if chosen & {*CODES}:
        shares.append((CODES, requests - few if shares else requests, False))
    found: list[str] = []
    sent = cases = 0
    with ProcessPoolExecutor(WORKERS, multiprocessing.get_context("spawn")) as pool:
        works = [
            pool.submit(_search, f"{seed}/{worker}", count // WORKERS, tuple(chosen & {*served}), of_namesrv)
            for served, count, of_namesrv in shares
            for worker in range(WORKERS)
        ]
        for done, work in enumerate(works, 1):
            outcome = work.result()
            _show(outcome)
            progress("cost", done, len(works))
            found += outcome.found
            sent += outcome.requests
            cases += outcome.cases
    print(f"{sent:,} requests in {cases:,} cases, {time.monotonic() - began:.0f} s", flush=True)
    return found


def _search(seed: str, requests: int, codes: tuple[int, ...], of_namesrv: bool) -> _Outcome:
    """Search in a process of its own."""
    began = time.monotonic()
    told = [began]
    name = f"{'name server' if of_namesrv else 'broker'} {seed}"

    def tell(dear: Dear, path: Path) -> None:
        again = f"./run fuzz --cost --replay {path}"
        print(f"{time.monotonic() - began:6.0f} s  {name}: {dear}; repeat it: {again}", flush=True)

    def progress(done: int) -> None:
        if time.monotonic() >= told[0] + TOLD_EACH_S:
            told[0] = time.monotonic()
            print(
                f"{time.monotonic() - began:6.0f} s  {name}: {done:,} requests, {len(found.found)} found, "
                f"{found.once} steps once, the longest {found.once_s * 1e3:.0f} ms",
                flush=True,
            )

    folder = FOLDER / name.replace("/", "-").replace(" ", "-")
    found = Search(seed, folder, tell, tuple(sorted(codes)), of_namesrv)
    found.run(requests, progress)
    once = f"{name}: {found.once} long steps were seen once"
    if found.once:
        longest = f"the longest took {found.once_s * 1e3:.1f} ms in {found.once_where}"
        once += f", and not again with the same requests; {longest}"
    return _Outcome([f"{name}: {dear}" for dear in found.found], found.corpora, found.requests, found.cases, once)


def _show(outcome: _Outcome) -> None:
    for code, corpus in sorted(outcome.corpora.items()):
        slow, dear = corpus.slowest, corpus.dearest
        if slow is not None and dear is not None:
            print(
                f"  {code:>6} {RequestCode(code).name:36} longest step {slow.cost.step_s * 1e3:7.2f} ms"
                f" ({slow.cost.size:>9,} bytes), {dear.of_a_byte * 1e6:6.2f} us a byte ({dear.cost.size:>9,} bytes)"
            )
    print(outcome.once, flush=True)


def replay(path: Path) -> list[str]:
    """Measure the requests of a file, some times on a new server."""
    genes = json.loads(path.read_text())
    of_namesrv = all(gene["code"] in NAMESRV_CODES and gene["code"] not in CODES for gene in genes)
    frames = frames_of(genes)
    with Rig(of_namesrv) as rig:
        costs = [rig.measure(frames) for _ in range(REPEATS)]
        together = [rig.together(frames) for _ in range(REPEATS)]
    for cost in costs:
        print(f"  one by one: {Dear(genes, cost)}")
    for found in together:
        print(f"  together: a step of {found.step_s * 1e3:.1f} ms in {found.where}")
    dear = Dear(genes, min(costs, key=lambda cost: cost.step_s))
    return [str(dear)] if dear.breaks else []
