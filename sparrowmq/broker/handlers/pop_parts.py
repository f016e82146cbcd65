"""The parts of pop consumption: its state, its handlers and its figures."""

from __future__ import annotations

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.handlers.handler import SharedParts
from sparrowmq.broker.handlers.pop_ack_handler import PopAckHandler
from sparrowmq.broker.handlers.pop_handler import PopHandler
from sparrowmq.broker.held_pulls import HeldLimits
from sparrowmq.broker.message_writer import Writer
from sparrowmq.broker.part import Part
from sparrowmq.broker.pop.pop_dead_letters import PopDeadLetters
from sparrowmq.broker.pop.pop_waits import PopWaits
from sparrowmq.broker.pop.popping import Popping
from sparrowmq.broker.pop.pops import Pops
from sparrowmq.broker.sql_filters import Filters
from sparrowmq.broker.state.journal import Journal
from sparrowmq.broker.state.kept_state import KeptState
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.turn import Turn
from sparrowmq.metrics.figures import Figures
from sparrowmq.remoting.quotas import Quotas
from sparrowmq.store.message_store import MessageStore


def pops_of(
    store: MessageStore,
    state: KeptState,
    writer: Writer,
    clock: Clock,
    turn: Turn,
    figures: Figures,
    young_bytes: int,
) -> Pops:
    """Return the pop state, which the journal has from now on."""
    pops = Pops(state.pops, store, state.offsets, clock, turn, state.journal, young_bytes)
    pops.bury = PopDeadLetters(store, writer, state.topics, state.groups).bury
    if state.journal is not None:
        state.journal.watch_pops(pops)
    _show(pops, figures)
    return pops


def _show(pops: Pops, figures: Figures) -> None:
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
            (("taken",), pops.count_popped),
            (("acknowledged",), pops.count_acknowledged),
            (("expired",), pops.expired),
            (("dead",), pops.buried),
        ],
    )


def pop_parts(
    shared: SharedParts,
    journal: Journal | None,
    pops: Pops,
    filters: Filters,
    settings: BrokerSettings,
    quotas: Quotas,
) -> Part:
    waits = PopWaits(shared.store)
    pops.on_ready = waits.ring
    limits = HeldLimits(settings.max_held_pulls, settings.max_held_pulls_of_one)
    popping = Popping(shared.store, pops, settings.name, settings.message_group_read_ahead)
    asked = PopHandler(shared, popping, waits, filters, limits, journal)
    asked.held_pops.quotas = quotas
    acks = PopAckHandler(pops, journal, shared.clock, settings.name)

    async def close() -> None:
        pops.close()

    return Part((asked, acks), saves=(close,))
