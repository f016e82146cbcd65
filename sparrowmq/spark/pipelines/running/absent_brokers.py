"""The brokers whose messages a run with an end (`once`) has not read, because they were away.

    begin of the run     the ends of the queues whose brokers are there, and the brokers that are away
    end of the run       a broker that was away is asked again; the stream has to have passed all these ends

A broker may also leave and come back in the midst of a run. So the offsets decide, and not what is there at the end.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from sparrowmq.errors import NetworkError, NoRoute
from sparrowmq.spark.options import SourceOptions, parse
from sparrowmq.spark.source.partition_ranges import Bounds, Offsets, Part, part_of
from sparrowmq.spark.source.query_offsets import Plan
from sparrowmq.spark.source.spark41_stream import newest_planned
from sparrowmq.spark.worker_network import connect


@dataclass(frozen=True, slots=True)
class Ends:
    """The ends of the queues whose brokers are there, and the names of the brokers that are away."""

    there: Offsets
    away: frozenset[str] = frozenset()


_UNKNOWN: Final = Ends(Offsets())


def ends_now(given: Mapping[str, str], checkpoint: str) -> Ends:
    """Ask the brokers of a stream: those of its topics, and those that it has read before.

    Without an answer of name servers nothing is known; then the stream itself fails.
    """
    options, begun = parse(SourceOptions, given), newest_planned(checkpoint) or Offsets()
    with connect(options) as network:
        plan = Plan(network, options)
        try:
            routed, unrouted = plan.queues(begun)
        except (NetworkError, NoRoute):
            return _UNKNOWN
        answers = plan.bounds_of_those_there([*routed, *unrouted], begun)
    there = {queue: held for queue, held in answers.items() if isinstance(held, Bounds) and held.incarnation != 0}
    known = {part_of(queue): held.incarnation for queue, held in there.items() if held.incarnation is not None}
    away = {queue.broker_name for queue, held in answers.items() if isinstance(held, NetworkError | NoRoute)}
    return Ends(Offsets({queue: held.end for queue, held in there.items()}, known), frozenset(away))


def not_read(given: Mapping[str, str], checkpoint: str, begin: Ends) -> list[str]:
    """Return the brokers whose messages a run that has ended lacks; `begin` is how they were at its begin."""
    now = ends_now(given, checkpoint) if begin.away else _UNKNOWN
    reached = newest_planned(checkpoint) or Offsets()
    late = {queue: end for queue, end in now.there.items() if queue.broker_name in begin.away}
    lacks = _behind(reached, begin.there) | _behind(reached, Offsets(late, now.there.incarnations))
    answered = {queue.broker_name for queue in late}
    return sorted(lacks | (begin.away - answered))


def sentence(brokers: Collection[str]) -> str:
    """Say what a run lacks, and what to do."""
    return (
        f"this run lacks messages of {', '.join(sorted(brokers))}, which did not answer; run it again when the broker "
        "is back"
    )


def _behind(reached: Offsets, ends: Offsets) -> set[str]:
    """The brokers whose queues end behind `reached`; another topic of the name has other offsets."""
    return {
        queue.broker_name
        for queue, end in ends.items()
        if reached.get(queue, end) < end and not _is_another(part_of(queue), reached, ends)
    }


def _is_another(part: Part, some: Offsets, others: Offsets) -> bool:
    """Whether offsets are of two topics of one name, where brokers say so."""
    one, other = some.incarnations.get(part, 0), others.incarnations.get(part, 0)
    return one != other and min(one, other) > 0
