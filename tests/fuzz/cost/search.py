"""The search: by request code, the dearest requests so far are changed, and what costs more is kept.

    small requests     dozens are sent together; the dispatcher's CPU for each says which are kept. If one of their
                       steps is long, or one of them took long, they are measured again: together, and alone
    larger requests    each is measured alone; so are the first ones of each code, and all of a code whose work is
                       long, though it may be done in slices, which the dispatcher does not see
    both               a limit is broken only by what breaks it three times in a row

Large and small requests have corpora of their own. A corpus of all would soon hold only large ones.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from tests.fuzz.cost.genes import CODES, NAMESRV_CODES, Gene, frames_of, mutated, seed_of, size_of
from tests.fuzz.cost.rig import HANG_S, LEAST_BYTES, MOST_TOGETHER, Cost, Hung, Rig

STEP_S: Final = 0.005
CPU_S_OF_A_BYTE: Final = 1e-6
# By size: the most bytes of a case, and the share of the cases.
SIZES: Final = ((2 << 10, 0.86), (32 << 10, 0.125), (1 << 20, 0.0145), (12 << 20, 0.0005))
ALONE_BYTES: Final = 16 << 10  # from here on, a case is measured alone
TOGETHER_BYTES: Final = 256 << 10
TOGETHER: Final = 768  # requests
# A case that takes as long among others is measured alone.
SUSPECT_S: Final = 0.002
# Of each code, so many small cases are measured alone first. If one takes so much CPU, all are.
TRIALS: Final = 6
HEAVY_S: Final = 0.01
# If small cases take so much CPU together, their codes are tried once more.
HEAVY_TOGETHER_S: Final = 0.5
REPEATS: Final = 3
KEPT: Final = 4
# What a broker keeps of the cases must not be what is measured.
REQUESTS_OF_A_BROKER: Final = 80_000
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
        """CPU seconds per byte of request and answer; small ones count as if they had LEAST_BYTES."""
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
        return f"{at} of {codes}, {size_of(self.genes):,} bytes: {'; '.join(self.breaks) or 'within the limits'}"


class Ranking:
    """The dearest cases of one code and size: by their longest step, and by CPU per byte."""

    def __init__(self) -> None:
        self.by_step: list[Dear] = []
        self.by_byte: list[Dear] = []

    def add(self, dear: Dear) -> None:
        if len(self.by_step) < KEPT or dear.cost.step_s > self.by_step[-1].cost.step_s:
            self.by_step = sorted([*self.by_step, dear], key=lambda each: -each.cost.step_s)[:KEPT]
        if len(self.by_byte) < KEPT or dear.of_a_byte > self.by_byte[-1].of_a_byte:
            self.by_byte = sorted([*self.by_byte, dear], key=lambda each: -each.of_a_byte)[:KEPT]


@dataclass
class Corpus:
    """The dearest cases of one code.

    Attributes:
        trials: the cases that were measured alone.
        is_heavy: whether one of them took long.
    """

    rankings: list[Ranking] = field(default_factory=lambda: [Ranking() for _ in SIZES])
    told_step_s: float = 0.0
    told_of_a_byte: float = 0.0
    spent_s: float = 0.0
    trials: int = 0
    is_heavy: bool = False

    def add(self, dear: Dear) -> None:
        size = size_of(dear.genes)
        at = next((at for at, (most, _) in enumerate(SIZES) if size <= most), len(SIZES) - 1)
        self.rankings[at].add(dear)

    @property
    def slowest(self) -> Dear | None:
        found = [dear for ranking in self.rankings for dear in ranking.by_step]
        return max(found, key=lambda each: each.cost.step_s, default=None)

    @property
    def dearest(self) -> Dear | None:
        found = [dear for ranking in self.rankings for dear in ranking.by_byte]
        return max(found, key=lambda each: each.of_a_byte, default=None)

    def is_news(self, dear: Dear) -> bool:
        """Whether the case is much worse than what was reported of this code."""
        is_slow = dear.cost.step_s > max(STEP_S, self.told_step_s * WORSE)
        is_dear = dear.cost.size >= LEAST_BYTES and dear.of_a_byte > max(CPU_S_OF_A_BYTE, self.told_of_a_byte * WORSE)
        return is_slow or is_dear

    def note(self, dear: Dear) -> None:
        """A case that is reported."""
        self.told_step_s = max(self.told_step_s, dear.cost.step_s)
        self.told_of_a_byte = max(self.told_of_a_byte, dear.of_a_byte)


class _Case(NamedTuple):
    code: int
    genes: list[Gene]
    frames: list[bytes]


class Search:
    """One search from a seed.

    Args:
        codes: which requests; all that the server serves by default.
        told: called with each case that breaks a limit, and the file that repeats it.
        of_namesrv: search the name server's requests instead of the broker's.
    Attributes:
        requests, cases: so many were sent.
        once_s: the longest step over the limit that was not seen again with the same requests; `once` counts these.
    """

    def __init__(
        self,
        seed: int | str,
        folder: Path,
        told: Callable[[Dear, Path], None],
        codes: tuple[int, ...] = (),
        of_namesrv: bool = False,
    ) -> None:
        self._rng = random.Random(seed)
        self._folder = folder
        self._told = told
        self._codes = codes or (NAMESRV_CODES if of_namesrv else CODES)
        self._of_namesrv = of_namesrv
        self.corpora = {code: Corpus() for code in self._codes}
        self.found: list[Dear] = []
        self.requests = self.cases = self.once = 0
        self.once_s = 0.0
        self.once_where = ""

    def run(self, requests: int, progress: Callable[[int], None]) -> None:
        """Play cases until so many requests were sent."""
        while self.requests < requests:
            most = min(requests, self.requests + REQUESTS_OF_A_BROKER)
            with Rig(self._of_namesrv) as rig:
                try:
                    while self.requests < most:
                        self.step(rig)
                        progress(self.requests)
                except Hung as hung:
                    self._keep(Dear(self._last, Cost(size_of(self._last), HANG_S, HANG_S, str(hung))))

    def step(self, rig: Rig) -> None:
        """Play some small cases together, and each larger one alone."""
        together: list[_Case] = []
        count = size = 0
        while count < TOGETHER and size < TOGETHER_BYTES:
            code = self._code()
            genes = self._next(code)
            if genes is None:
                continue
            frames = frames_of(genes, count + 1)
            corpus = self.corpora[code]
            is_heavy = any(self.corpora[gene["code"]].is_heavy for gene in genes)
            if sum(map(len, frames)) > ALONE_BYTES or is_heavy or corpus.trials < TRIALS:
                self._alone(rig, code, genes)
                continue
            together.append(_Case(code, genes, frames))
            count += len(frames)
            size += sum(map(len, frames))
        while together:
            together = self._together(rig, together)

    def _code(self) -> int:
        # Each code gets the same time: one that takes a second must not keep the search from the others.
        chosen = self._rng.choices(self._codes, k=4)
        return min(chosen, key=lambda each: self.corpora[each].spent_s)

    def _together(self, rig: Rig, cases: list[_Case]) -> list[_Case]:
        """Measure small cases. Returns those that were not reached, because a request ended the connection."""
        self._last = [gene for case in cases for gene in case.genes]
        found = rig.together([frame for case in cases for frame in case.frames])
        at = 0
        for number, case in enumerate(cases):
            took_s = found.took_s[at : at + len(case.frames)]
            if min(took_s) < 0 and number:
                cases, rest = cases[:number], self._renumbered(cases[number:])
                break
            at += len(case.frames)
            self._note(rig, case, took_s)
        else:
            rest = []
        if found.cpu_s > HEAVY_TOGETHER_S:
            for case in cases:
                self.corpora[case.code].trials = TRIALS - 1
        if found.step_s > STEP_S:
            self._look_closer(rig, cases, found.step_s, found.where)
        return rest

    def _renumbered(self, cases: list[_Case]) -> list[_Case]:
        first, found = 1, []
        for code, genes, frames in cases:
            found.append(_Case(code, genes, frames_of(genes, first)))
            first += len(frames)
        return found

    def _note(self, rig: Rig, case: _Case, took_s: list[float]) -> None:
        self.requests += len(took_s)
        self.cases += 1
        longest_s = max(took_s)
        if longest_s > SUSPECT_S:
            self._alone(rig, case.code, case.genes)
            return
        at = took_s.index(longest_s)
        size = len(case.frames[at])
        corpus = self.corpora[case.code]
        corpus.add(Dear(case.genes, Cost(size, longest_s, longest_s, "the dispatcher", at)))
        corpus.spent_s += sum(took_s)

    def _look_closer(self, rig: Rig, cases: list[_Case], step_s: float, where: str) -> None:
        """Find the fewest of the cases that have a long step together, if they have one each time."""
        at_first = len(cases)
        cost = self._least_together(rig, cases)
        while cost.step_s > STEP_S and len(cases) > 1:
            half = len(cases) // 2
            for part in (self._renumbered(cases[:half]), self._renumbered(cases[half:])):
                of_part = self._least_together(rig, part)
                if of_part.step_s > STEP_S:
                    cases, cost = part, of_part
                    break
            else:
                break
        if cost.step_s <= STEP_S:
            self._seen_once(step_s, f"{where}, of {at_first} cases")
            return
        dear = Dear([gene for case in cases for gene in case.genes], cost)
        if self._is_news(dear):
            self.corpora.setdefault(dear.code, Corpus()).note(dear)
            self._keep(dear)

    def _seen_once(self, step_s: float, where: str) -> None:
        self.once += 1
        if step_s > self.once_s:
            self.once_s, self.once_where = step_s, where

    def _least_together(self, rig: Rig, cases: list[_Case]) -> Cost:
        frames = [frame for case in cases for frame in case.frames]
        assert len(frames) <= MOST_TOGETHER
        least = min((rig.together(frames) for _ in range(REPEATS)), key=lambda found: found.step_s)
        self.requests += REPEATS * len(frames)
        at = least.took_s.index(max(least.took_s))
        return Cost(sum(map(len, frames)), 0.0, least.step_s, least.where, at)

    def _alone(self, rig: Rig, code: int, genes: list[Gene]) -> None:
        began = time.monotonic()
        dear = self._measured(rig, genes, 1)
        self.cases += 1
        if dear.breaks and self._is_news(dear):
            first, dear = dear.cost, self._measured(rig, genes, REPEATS)
            if dear.breaks and self._is_news(dear):
                self.corpora.setdefault(dear.code, Corpus()).note(dear)
                self._keep(dear)
            elif not dear.breaks:
                self._seen_once(first.step_s, f"{first.where}, of code {code}")
        corpus = self.corpora[code]
        corpus.add(dear)
        corpus.trials += 1
        codes = {gene["code"] for gene in genes}
        for each in codes:
            self.corpora[each].spent_s += time.monotonic() - began
        # Of several codes, any may be the one that takes long.
        corpus.is_heavy |= len(codes) == 1 and size_of(genes) <= ALONE_BYTES and dear.cost.cpu_s > HEAVY_S

    def _is_news(self, dear: Dear) -> bool:
        return self.corpora.setdefault(dear.code, Corpus()).is_news(dear)

    def _next(self, code: int) -> list[Gene] | None:
        """A new case of a code; None if it became too large."""
        rng = self._rng
        at = rng.choices(range(len(SIZES)), [share for _, share in SIZES])[0]
        ranking = self.corpora[code].rankings[at]
        parents = ranking.by_step + ranking.by_byte
        if not parents and at:  # a step larger than what there is
            smaller = self.corpora[code].rankings[at - 1]
            parents = smaller.by_step + smaller.by_byte
        genes = [seed_of(rng, code)] if not parents or rng.random() < 0.1 else rng.choice(parents).genes
        genes = mutated(rng, genes, lambda: seed_of(rng, self._code()))
        return genes if size_of(genes) <= SIZES[at][0] else None

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
