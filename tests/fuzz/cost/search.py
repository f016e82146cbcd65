"""The search: by request code, the dearest requests so far are changed, and what costs more is kept."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from tests.fuzz.cost.genes import CODES, Gene, frames_of, mutated, seed_of, size_of
from tests.fuzz.cost.rig import LEAST_BYTES, Cost, Hung, Rig

STEP_S: Final = 0.005
CPU_S_OF_A_BYTE: Final = 1e-6
USUAL_BYTES: Final = 1 << 20
MOST_BYTES: Final = 12 << 20
LARGE_SHARE: Final = 0.03
REPEATS: Final = 3
KEPT: Final = 4
# What a broker keeps of the cases must not be what is measured.
CASES_OF_A_BROKER: Final = 2000
# A request that breaks a limit is reported again only if it costs so much more.
WORSE: Final = 3.0


class Dear(NamedTuple):
    """A case with what it cost at least, of several times."""

    genes: list[Gene]
    cost: Cost

    @property
    def code(self) -> int:
        """The request with the longest step."""
        code: int = self.genes[min(self.cost.at, len(self.genes) - 1)]["code"]
        return code

    @property
    def of_a_byte(self) -> float:
        """CPU seconds per byte; small requests count as if they had LEAST_BYTES."""
        return self.cost.cpu_s / max(self.cost.size, LEAST_BYTES)

    @property
    def breaks(self) -> list[str]:
        broken = []
        if self.cost.step_s > STEP_S:
            broken.append(f"a step of {self.cost.step_s * 1e3:.1f} ms in {self.cost.where}")
        if self.of_a_byte > CPU_S_OF_A_BYTE and self.cost.size >= LEAST_BYTES:
            broken.append(f"{self.of_a_byte * 1e6:.2f} us a byte for {self.cost.size:,} bytes")
        return broken

    def __str__(self) -> str:
        codes = " then ".join(str(gene["code"]) for gene in self.genes)
        at = "the end of the connection" if self.cost.at == len(self.genes) else self.code
        return (
            f"{at} of {codes}, {size_of(self.genes):,} bytes: {'; '.join(self.breaks) or 'within the limits'}"
        )


@dataclass
class Corpus:
    """The dearest cases of one code: by their longest step, and by CPU per byte."""

    by_step: list[Dear] = field(default_factory=list)
    by_byte: list[Dear] = field(default_factory=list)
    told_step_s: float = 0.0
    told_of_a_byte: float = 0.0
    spent_s: float = 0.0

    def add(self, dear: Dear) -> None:
        self.by_step = sorted([*self.by_step, dear], key=lambda each: -each.cost.step_s)[:KEPT]
        self.by_byte = sorted([*self.by_byte, dear], key=lambda each: -each.of_a_byte)[:KEPT]

    def is_news(self, dear: Dear) -> bool:
        """Whether the case is much worse than what was reported of this code."""
        is_slow = dear.cost.step_s > max(STEP_S, self.told_step_s * WORSE)
        is_dear = dear.cost.size >= LEAST_BYTES and dear.of_a_byte > max(
            CPU_S_OF_A_BYTE, self.told_of_a_byte * WORSE
        )
        return is_slow or is_dear

    def note(self, dear: Dear) -> None:
        """A case that is reported."""
        self.told_step_s = max(self.told_step_s, dear.cost.step_s)
        self.told_of_a_byte = max(self.told_of_a_byte, dear.of_a_byte)


class Search:
    """One search from a seed.

    Args:
        codes: which requests; all that a broker serves by default.
        told: called with each case that breaks a limit, and the file that repeats it.
    """

    def __init__(
        self, seed: int, folder: Path, told: Callable[[Dear, Path], None], codes: tuple[int, ...] = CODES
    ) -> None:
        self._rng = random.Random(seed)
        self._folder = folder
        self._told = told
        self._codes = codes
        self.corpora = {code: Corpus() for code in codes}
        self.found: list[Dear] = []
        self.requests = 0

    def run(self, requests: int, progress: Callable[[int], None]) -> None:
        """Play cases until so many requests were sent."""
        while self.requests < requests:
            with Rig() as rig:
                try:
                    for _ in range(CASES_OF_A_BROKER):
                        self._step(rig)
                        progress(self.requests)
                        if self.requests >= requests:
                            break
                except Hung as hung:
                    self._keep(Dear(self._last, Cost(size_of(self._last), 30.0, 30.0, str(hung))))

    def _step(self, rig: Rig) -> None:
        # Each code gets the same time: one that takes a second must not keep the search from the others.
        code = min(
            self._rng.sample(self._codes, min(8, len(self._codes))),
            key=lambda each: self.corpora[each].spent_s,
        )
        corpus, genes = self.corpora[code], self._next(code)
        if genes is None:
            return
        began = time.monotonic()
        dear = self._measured(rig, genes, 1)
        if dear.breaks and self._is_news(dear):
            dear = self._measured(rig, genes, REPEATS)
            if dear.breaks and self._is_news(dear):
                self.corpora.setdefault(dear.code, Corpus()).note(dear)
                self._keep(dear)
        corpus.add(dear)
        corpus.spent_s += time.monotonic() - began

    def _is_news(self, dear: Dear) -> bool:
        return self.corpora.setdefault(dear.code, Corpus()).is_news(dear)

    def _next(self, code: int) -> list[Gene] | None:
        """A new case of a code; None if it became too large."""
        rng, corpus = self._rng, self.corpora[code]
        parents = corpus.by_step + corpus.by_byte
        if not parents or rng.random() < 0.1:
            genes = [seed_of(rng, code)]
        else:
            genes = rng.choice(parents).genes
        genes = mutated(rng, genes, seed_of(rng, rng.choice(self._codes)))
        most = MOST_BYTES if rng.random() < LARGE_SHARE else USUAL_BYTES
        return genes if size_of(genes) <= most else None

    def _measured(self, rig: Rig, genes: list[Gene], times: int) -> Dear:
        self._last = genes
        frames = frames_of(genes)
        costs = []
        for _ in range(times):
            costs.append(rig.measure(frames))
            self.requests += len(frames)
        least = min(costs, key=lambda cost: cost.step_s)
        return Dear(genes, least._replace(cpu_s=min(cost.cpu_s for cost in costs)))

    def _keep(self, dear: Dear) -> None:
        self.found.append(dear)
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{dear.code}-{len(self.found)}.json"
        path.write_text(json.dumps(dear.genes))
        self._told(dear, path)
