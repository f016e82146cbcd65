"""The parts of pop consumption: its state, its handlers and its figures."""

from __future__ import annotations

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.filters import Filters
from sparrowmq.broker.handlers.pop_ack_handler import PopAckHandler
from sparrowmq.broker.handlers.pop_handler import PopHandler
from sparrowmq.broker.held_pulls import HeldLimits
from sparrowmq.broker.message_writer import Writer
from sparrowmq.broker.metrics.consumption import Consumption
from sparrowmq.broker.part import Part
from sparrowmq.broker.pop import pop_figures
from sparrowmq.broker.pop.pop_dead_letters import PopDeadLetters
from sparrowmq.broker.pop.pop_waits import PopWaits
from sparrowmq.broker.pop.popping import Popping
from sparrowmq.broker.pop.pops import Pops
from sparrowmq.broker.state.kept_state import KeptState
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.turn import Turn
from sparrowmq.metrics.figures import Figures
from sparrowmq.remoting.quotas import Quotas
from sparrowmq.store.message_store import MessageStore


def pops_of(
    store: MessageStore, state: KeptState, writer: Writer, clock: Clock, turn: Turn, figures: Figures
) -> Pops:
    """Return the pop state, which the journal has from now on."""
    pops = Pops(state.pops, store, state.offsets, clock, turn, state.journal)
    pops.bury = PopDeadLetters(store, writer, state.topics, state.groups).bury
    if state.journal is not None:
        state.journal.watch_pops(pops)
    pop_figures.show(pops, figures)
    return pops


def pop_parts(
    store: MessageStore,
    state: KeptState,
    pops: Pops,
    filters: Filters,
    consumption: Consumption,
    settings: BrokerSettings,
    clock: Clock,
    quotas: Quotas,
) -> Part:
    waits = PopWaits(store)
    pops.on_ready = waits.ring
    limits = HeldLimits(settings.max_held_pulls, settings.max_held_pulls_of_one)
    asked = PopHandler(
        Popping(store, pops, settings.name, settings.message_group_read_ahead),
        waits,
        state.topics,
        state.groups,
        filters,
        consumption,
        clock,
        limits,
    )
    asked.held.quotas = quotas
    acks = PopAckHandler(pops, state.journal, clock, settings.name)
    return Part((asked, acks), saves=(pops.close,))
