"""What the benchmarks of brokers share: their command line, and measuring brokers in turn.

Machines change while one measures: neighbours, clock rates, a disk's caches. So no broker is measured three times in
a row; each round asks every broker once.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from bench.load import run_load
from bench.page_cache import PageCache, add_option
from bench.results import Measure, keep_section, table
from bench.servers import BEFORE, PEERS, PLAIN, Peer, is_known
from bench.usage import cpu_s

WARM_UP: Final = 600_000


class Named(Protocol):
    """What is measured."""

    @property
    def name(self) -> str:
        """As the table has it."""


P = TypeVar("P", bound=Named)


class Run:
    """One run of one benchmark: its options, and the figures of each case and broker."""

    def __init__(self, name: str, docstring: str, parser: argparse.ArgumentParser | None = None) -> None:
        self.name, self.question = name, docstring.splitlines()[0]
        self.options = _parse(parser or arguments(self.question))
        self._cache = PageCache(self.options.fill_cache)
        self.figures: dict[tuple[str, ...], dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))

    def alternate(self, case: tuple[str, ...], peers: Sequence[P], measure: Callable[[P], dict[str, Any]]) -> None:
        """Measure every broker once a round."""
        for _round in range(self.options.rounds):
            for peer in peers:
                self._cache.fill()
                figures = measure(peer)
                self.figures[case][peer.name].append(figures)
                rate = f" {figures['rate']:,.0f}/s" if "rate" in figures else ""
                refused = f", {figures['errors']} refused: {figures['error']}" if figures.get("errors") else ""
                print(f"{self.name} {' '.join(case)} {peer.name}{rate}{refused}", flush=True)

    def load(self, mode: str, peer: Peer, **options: Any) -> dict[str, Any]:
        """One measurement with the load generator, for as long as the options say."""
        in_flight = options["window"] * options.get("connections", 1)
        had = cpu_s(peer.slave) if peer.slave else 0.0
        figures = run_load(
            mode,
            peer.port,
            pid=peer.pid,
            seconds=self.options.seconds,
            warmup=100 * in_flight,
            **peer.asked,
            **options,
        )
        if peer.slave:
            figures["slave_cpu_s"] = cpu_s(peer.slave) - had  # warm-up included, which is little
        return figures

    def keep(self, heads: Sequence[str], measures: Sequence[Measure], note: str) -> None:
        """Write the section of RESULTS.md; a quick run is only shown."""
        self.keep_text(f"{table(heads, self.figures, measures)}\n\n{note}")

    def keep_text(self, text: str) -> None:
        """The same with a text of the benchmark's own."""
        if self.options.quick:
            print(text)
        else:
            keep_section(self.name, self.question, text)


def arguments(question: str) -> argparse.ArgumentParser:
    """The options of every benchmark of brokers."""
    parser = argparse.ArgumentParser(description=question)
    parser.add_argument("--peers", type=names, default=PEERS, help="brokers to measure: a,b,c")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=3, help="of one measurement")
    parser.add_argument("--warm-up", type=int, default=WARM_UP, help="messages sent to each broker before")
    parser.add_argument("--quick", action="store_true", help="one short round, shown and not kept")
    add_option(parser)
    return parser


def names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def _parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    options = parser.parse_args()
    unknown = [name for name in options.peers if not is_known(name)]
    if unknown:
        parser.error(
            f"no broker {', '.join(unknown)}; there are {', '.join(PEERS)}, {PLAIN} and {BEFORE}:PATH of a "
            "checkout where ./run setup was done"
        )
    if options.quick:
        options.rounds, options.seconds, options.warm_up = 1, 1, 50_000
    return options
