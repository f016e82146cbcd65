"""The figures of pop consumption."""

from __future__ import annotations

from sparrowmq.broker.pop.pops import Pops
from sparrowmq.metrics.figures import Figures


def show(pops: Pops, figures: Figures) -> None:
    figures.gauge(
        "sparrowmq_pop_messages",
        "popped messages that are not acknowledged: with consumers, visible again, or waiting",
        lambda: pops.invisible,
    )
    figures.counters(
        "sparrowmq_pop_total",
        "popped messages: given to consumers, acknowledged, not acknowledged in time, moved to dead-letter queues",
        ("what",),
        lambda: [
            (("taken",), pops.taken),
            (("acknowledged",), pops.settled),
            (("expired",), pops.expired),
            (("dead",), pops.buried),
        ],
    )
