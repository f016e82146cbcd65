"""The section that `bench peers` writes: its tables, who loses to whom, and which aims were reached."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from bench.clients.task import BATCHES, IN_TURN, ONE_BY_ONE, PIPELINED, Figures
from bench.results import row, spread

OURS: Final = "ours"
AIMED: Final = (PIPELINED, ONE_BY_ONE, BATCHES)
TIMES_AIOKAFKA: Final = 3
OF_CONFLUENT: Final = 0.5
CPU_US: Final = 5

Ranking = Mapping[str, Mapping[str, Sequence[Figures]]]  # way -> client -> rounds


@dataclass(frozen=True)
class Serving:
    """A server: its name with how safe a message is, and what it had in memory at the start and at the end."""

    safety: str
    idle_mib: float
    end_mib: float


def page(figures: Ranking, servers: Mapping[str, Serving], notes: Sequence[str]) -> str:
    """The whole text: rates, memory, losers, aims, notes."""
    parts = [_rates(figures), _memory(figures, servers)]
    parts += [_list("The race", losers(figures)), _list("What we want of ours", aims(figures))]
    return "\n\n".join([*filter(None, parts), " ".join(notes)])


def losers(figures: Ranking) -> Iterator[str]:
    """A sentence for each way: the fastest, and everyone who loses to it, by rate; those beside the race are out."""
    for way, clients in figures.items():
        first, *others = sorted(
            (name for name in clients if not name.startswith(f"{OURS} ")),
            key=lambda name: -rate(figures, way, name),
        )
        if not others:
            continue
        behind = ", ".join(
            f"{name} ({_share(rate(figures, way, name) / rate(figures, way, first))})" for name in others
        )
        yield f"{way}: {first} is the fastest with {rate(figures, way, first):,.0f}/s. Losers: {behind}."


def aims(figures: Ranking) -> Iterator[str]:
    """What was wanted of ours, and whether it is so; an aim beside a client that is left out is left out too."""
    for way in AIMED:
        clients = figures.get(way, {})
        if OURS not in clients:
            continue
        ours = rate(figures, way, OURS)
        for rival, factor in (("aiokafka", TIMES_AIOKAFKA), ("confluent-kafka", OF_CONFLUENT)):
            if rival in clients:
                ratio = ours / rate(figures, way, rival)
                yield _aim(f"{way}, {factor} times {rival}", f"{ratio:.2f} times", reached=ratio >= factor)
        cpu_us = median(found["cpu_us"] for found in clients[OURS])
        wanted = f"{way}, at most {CPU_US} us of client CPU a message"
        yield _aim(wanted, f"{cpu_us:.1f} us", reached=cpu_us <= CPU_US)


def rate(figures: Ranking, way: str, name: str) -> float:
    return median(found["rate"] for found in figures[way][name])


def _aim(wanted: str, is_so: str, *, reached: bool) -> str:
    return f"{wanted}: {'reached' if reached else 'missed'}, {is_so}."


def _rates(figures: Ranking) -> str:
    heads = (
        "what",
        "client",
        "messages/s",
        "times ours",
        "client CPU us/message",
        "server CPU us/message",
        "p99 us",
    )
    rows = [
        [
            way,
            name,
            spread([found["rate"] for found in rounds]),
            _beside_ours(figures, way, name),
            spread([found["cpu_us"] for found in rounds]),
            spread([found["server_us"] for found in rounds]),
            f"{median(found['p99_us'] for found in rounds):,.0f}" if way == IN_TURN else "",
        ]
        for way, clients in figures.items()
        for name, rounds in clients.items()
    ]
    return _table(heads, rows)


def _beside_ours(figures: Ranking, way: str, name: str) -> str:
    if OURS not in figures[way]:
        return ""
    return f"{rate(figures, way, name) / rate(figures, way, OURS):.2f}"


def _memory(figures: Ranking, servers: Mapping[str, Serving]) -> str:
    heads = ("client", "server", "server's MiB at the start", "at the end", "client's most MiB")
    rows = [
        [
            name,
            server.safety,
            f"{server.idle_mib:,.0f}",
            f"{server.end_mib:,.0f}",
            f"{_most(figures, name):,.0f}",
        ]
        for name, server in servers.items()
    ]
    return _table(heads, rows)


def _most(figures: Ranking, name: str) -> float:
    return max(found["peak_mib"] for clients in figures.values() for found in clients.get(name, ()))


def _share(ratio: float) -> str:
    return f"{ratio:.0%} of it"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(map(row, [heads, ["---"] * len(heads), *rows]))


def _list(head: str, sentences: Iterator[str]) -> str:
    lines = [f"- {sentence}" for sentence in sentences]
    return "\n".join([f"{head}:", "", *lines]) if lines else ""
