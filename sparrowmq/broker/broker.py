"""One broker: builds, starts and stops its parts. Only this file knows every part.

start: port ── store ── parts ── dispatcher ── listening ── registered
stop:  not registered ── not listening ── everything saved ── store closed
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sparrowmq.auth.rotated_file import denials_file
from sparrowmq.broker.access_control import AccessControl, create_first_users, sign_of, topics_of
from sparrowmq.broker.broker_settings import BrokerRole, BrokerSettings
from sparrowmq.broker.broker_state import BrokerState
from sparrowmq.broker.clients import Clients, ReplyWaiters
from sparrowmq.broker.delayed.delay import DelayedDelivery, delay_levels
from sparrowmq.broker.delayed.timer import TimedDelivery, timer_redirect
from sparrowmq.broker.failover.term import NO_FAILOVER, Term
from sparrowmq.broker.groups import Groups
from sparrowmq.broker.handlers.access_handler import AccessHandler, UsersHandler
from sparrowmq.broker.handlers.admin_handler import CleaningHandler, InspectHandler, LeadershipHandler
from sparrowmq.broker.handlers.assignment_handler import assignment_part, lock_part
from sparrowmq.broker.handlers.batch_handler import batch_parts
from sparrowmq.broker.handlers.clients_handler import ClientHandler, RelayHandler
from sparrowmq.broker.handlers.groups_handler import GroupHandler
from sparrowmq.broker.handlers.handler import SharedParts
from sparrowmq.broker.handlers.offsets_handler import OffsetHandler, ProgressHandler
from sparrowmq.broker.handlers.pop_handler import pop_parts, pops_of
from sparrowmq.broker.handlers.pull_handler import PullHandler, PullRules
from sparrowmq.broker.handlers.query_handler import QueryHandler
from sparrowmq.broker.handlers.recall_handler import RecallHandler
from sparrowmq.broker.handlers.reply_handler import ReplyHandler, ReplyRules
from sparrowmq.broker.handlers.retry_handler import RetryHandler
from sparrowmq.broker.handlers.send_handler import SendHandler, SendRules
from sparrowmq.broker.handlers.topics_handler import TopicHandler
from sparrowmq.broker.handlers.transactions_handler import TransactionHandler
from sparrowmq.broker.held_pulls import HeldLimits
from sparrowmq.broker.journal import Journal, JournalRules
from sparrowmq.broker.message_writer import Writer
from sparrowmq.broker.metrics.consumption import Consumption
from sparrowmq.broker.metrics.status import Measured, Status
from sparrowmq.broker.metrics.traffic import Traffic
from sparrowmq.broker.part import Chore, Part, run_chores
from sparrowmq.broker.pop.pop_queue import PopTable
from sparrowmq.broker.pop.pop_state import PopState
from sparrowmq.broker.ports import GrpcPortParts, bind_vip_port, has_port, open_grpc, without_pulls
from sparrowmq.broker.registration import Registration
from sparrowmq.broker.repeated_sends import RepeatedSends
from sparrowmq.broker.replication.ha_master import check_role, ha_door
from sparrowmq.broker.replication.peer_repair import SelfRepair
from sparrowmq.broker.replication.role import BrokerContext, ReplicationRole
from sparrowmq.broker.replication.slave_guard import refusing, refusing_once_over
from sparrowmq.broker.saved_state import ReservedSpace
from sparrowmq.broker.short_pulls import PlainPulls
from sparrowmq.broker.sql_filters import Filters
from sparrowmq.broker.store import FreedSpace, open_store, opened_full, store_part, wait_for_space, while_writable
from sparrowmq.broker.topics import Topics
from sparrowmq.broker.transactions.open_transactions import TransactionRules
from sparrowmq.broker.transactions.transactions import MaySend, Transactions
from sparrowmq.core import descriptors, logs
from sparrowmq.errors import StoreFailed
from sparrowmq.kernel.lanes import END_CODE, SEND_CODE
from sparrowmq.kernel.pulls import PULL_CODE
from sparrowmq.loop.clock import Clock, SystemClock
from sparrowmq.loop.tasks import Background, Spawn
from sparrowmq.loop.turn import POLLS, Turn
from sparrowmq.metrics import condition_kinds as kinds
from sparrowmq.metrics.condition_kinds import Probe
from sparrowmq.metrics.conditions import POLL_S, Conditions, Machine, client_certificate_probe
from sparrowmq.metrics.figures import Figures
from sparrowmq.metrics.metrics_settings import metrics_listener
from sparrowmq.metrics.server_figures import declare_denials
from sparrowmq.protocol.messages.message import Perm
from sparrowmq.protocol.requests.headers import HeartBeatReply
from sparrowmq.protocol.requests.request_table import Role
from sparrowmq.protocol.wire.command import Command
from sparrowmq.remoting.latencies import Latencies
from sparrowmq.remoting.listener import Listener, check_not_public
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.quotas import Quotas
from sparrowmq.remoting.request_dispatch import Dispatcher, Guard
from sparrowmq.remoting.server import Server, limits_for
from sparrowmq.remoting.session import Session
from sparrowmq.remoting.short_way import PlainSends
from sparrowmq.remoting.tls.contexts import ServerTls, client_context
from sparrowmq.settings.live_settings import SAVE_AGAIN_S, LiveSettings
from sparrowmq.store.message_store import MessageStore

if TYPE_CHECKING:
    from sparrowmq.auth.account_files import AccountFiles
    from sparrowmq.metrics.http_endpoint import Answer, Endpoint, Query

IsOver = Callable[[int], bool]
_MISSING: Final = {Perm.READ_WRITE: "", Perm.READ: "takes no messages", Perm.WRITE: "gives no messages"}


class Broker:
    """A broker, which runs while its context is entered.

        async with Broker(settings) as broker:
            await broker.serve()

    `file` is the settings file, where changes to the settings are saved. A member with failover has a `term`, and
    `resources`; then the broker stays registered when it stops, until `leave`.

    Attributes:
        store: its messages; exists once the context is entered.
        grpc_address: the address for gRPC clients of RocketMQ 5; "" without the port.
    Raises:
        ConfigError: too few files may be open (descriptors.py), or the files of TLS cannot be used.
    Raises on entering:
        ConfigError: the broker cannot listen on its address, or must not.
        StoreLocked, BadStore, CorruptRecord, DiskFull: the store cannot be opened.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        clock: Clock | None = None,
        file: Path | None = None,
        term: Term = NO_FAILOVER,
        resources: MemberResources | None = None,
    ) -> None:
        self.settings = settings
        self.term = term
        self._registration: Registration | None = None
        self._has_space_again = False
        self.journal: Journal | None = None  # of a master
        self._live_settings = LiveSettings(settings, file)
        self._clock = clock or SystemClock()
        self._turn = Turn(POLLS if settings.busy_poll else 0, self._clock.monotonic)
        self._descriptor_share = descriptors.divide(descriptors.limit(), with_store=True, ports=1 + has_port(settings))
        self._owns_resources = resources is None
        self._resources = resources or MemberResources(settings, self._clock)
        self._tls, self._client_tls = self._resources.tls, self._resources.client_tls
        self._latencies = Latencies(settings.slow_request_ms / 1000)
        self._quotas = Quotas(self._clock, settings.quotas)
        self._server = Server(
            *(_not_started, self._clock, settings.bind_address, settings.port, limits_for(self._descriptor_share)),
            turn=self._turn,
            tls=self._tls,
            quotas=self._quotas,
        )
        self._slave_port: Listener | None = None
        self._metrics: Listener | Endpoint | None = self._resources.metrics
        self.grpc_address = ""
        self._grpc_problem: Callable[[], str] = str
        self._figures = Figures()
        names = remedy_words(settings, file)
        self._conditions = Conditions(self._clock, self._figures, lambda: {**names, "ADDRESS": self.address})
        self._stack = AsyncExitStack()
        self._figures.gauge(
            "sparrowmq_drained",
            "1 while producers do not find the broker (drained=true)",
            lambda: int(self.settings_now.drained),
        )

    @property
    def settings_now(self) -> BrokerSettings:
        return self._live_settings.current

    @property
    def address(self) -> str:
        return self.settings.address(self._server.port)

    @property
    def ha_address(self) -> str:
        return self.settings.ha_address(self._slave_port.port) if self._slave_port is not None else ""

    @property
    def metrics_address(self) -> str:
        return f"{self._metrics.host}:{self._metrics.port}" if self._metrics is not None else ""

    async def __aenter__(self) -> Broker:
        check_role(self.settings)
        check_not_public(self.settings.bind_address, self.settings.insecure or self.settings.checks_access)
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: object) -> bool | None:
        return await self._stack.__aexit__(*error)  # type: ignore[arg-type]

    def stop_following(self) -> int:
        """Stop taking the log of the master. Returns the end of the log, which stays."""
        self._role.stop()
        return self.store.end

    async def leave(self) -> None:
        if self._registration is not None:
            await self._registration.leave()

    def unready(self) -> str:
        """Return the conditions that keep it from its work, in words; "" if there are none."""
        return "; ".join(condition.facts for condition in self._conditions.unready())

    def reload(self, settings: BrokerSettings) -> None:
        self._live_settings.reload(settings)

    async def serve(self) -> None:
        """Serve forever. When the broker fails, this is cancelled, and the context raises the reason.

        It returns only if the disk was full at the start and has room now: then start another broker.
        """
        await wait_for_space(self.freed_space, self._clock)
        self._has_space_again = True

    async def _start(self, stack: AsyncExitStack) -> None:
        self._server.bind()
        stack.push_async_callback(self._server.stop)
        vip_port = bind_vip_port(self.settings)
        if vip_port is not None:
            self._server.also_at(vip_port, without_pulls(lambda *request: self._server.dispatch(*request)))
        self._slave_port = ha_door(self.settings, self._server.port)
        if self._slave_port is not None:
            stack.callback(self._slave_port.close)
        bind_address, insecure = self.settings.bind_address, self.settings.insecure
        if self._owns_resources and (door := metrics_listener(self.settings, bind_address, insecure)) is not None:
            self._metrics = door
            stack.callback(door.close)
        store_settings = replace(
            self.settings.store(self._server.port), open_queue_files=self._descriptor_share.queue_files
        )
        self.store = await open_store(self.settings, store_settings, self._clock, self.term)
        context = BrokerContext(
            settings=self.settings,
            address=self.address,
            store=self.store,
            clock=self._clock,
            figures=self._figures,
            term=self.term,
            slaves=self._slave_port,
            tls=self._tls,
            client_tls=self._client_tls,
            is_full=opened_full(self.store),
        )
        self._role = ReplicationRole(context)
        self.freed_space = FreedSpace(self.store) if opened_full(self.store) else None
        stack.callback(self._raise_failure)
        stack.callback(self.store.close)
        await self._start_parts(stack, self.store)

    async def _start_parts(self, stack: AsyncExitStack, store: MessageStore) -> None:
        resources = self._resources
        pool = resources.pool
        if self._owns_resources:
            stack.push_async_callback(resources.disconnect)
        state = await self._load_state(store)
        self.journal = state.journal
        access = AccessControl(self.settings, topics_of(store), self._clock, state.users, resources.accounts)
        resources.accounts = access.files
        declare_denials(self._figures, access.audit)
        if not self.settings.is_slave:
            create_first_users(self.settings, state.users, may_fail=self.term.is_elected)
        registration = self._registration = self._create_registration(state.topics, pool)
        identity = (self.settings.cluster, self.settings.name, self.address)
        access_part = access.part(AccessHandler(access, identity, self._clock), UsersHandler(access))
        parts = (
            *self._parts(store, state, registration, pool, access.may_send),
            access_part,
            SelfRepair(store, pool, self._clock, partial(self._role.peers, pool)).part(),
            ReservedSpace(self.settings.config_path).part(),
            registration.part(),
            Part(probes=(client_certificate_probe(self._clock, self._client_tls, self.term.etcd_tls),)),
            Part(probes=Machine(self._clock, lambda: store.newest_ms).probes()),
            Part(chores=(Chore("save settings", SAVE_AGAIN_S, self._live_settings.save_again),)),
            Part(chores=(Chore("conditions", POLL_S, self._conditions.poll),)),
        )
        self._conditions.watch([*self._probes(), *(probe for part in parts for probe in part.probes)])
        tasks = await stack.enter_async_context(Background())
        for task in [task for part in parts for task in part.tasks]:
            work = task.start()
            # With failover a store that fails ends the broker, so another member can become the master.
            only_work_ends = task.needs_writing and (opened_full(store) or not self.term.is_elected)
            tasks.spawn(while_writable(work, task.name) if only_work_ends else work, task.name)
        tasks.spawn(self._server.drop_silent_peers(), "silent peers")
        tasks.spawn(self._tls.watch(), "TLS files")
        tasks.spawn(run_chores([chore for part in parts for chore in part.chores], self._clock), "chores")
        for save in [save for part in parts for save in part.saves]:
            stack.push_async_callback(save)
        handlers = [handler for part in parts for handler in part.handlers]
        guard = self._guard(access.guard)
        self._server.dispatch = dispatcher = Dispatcher(
            *(Role.BROKER, handlers, tasks.spawn, guard),
            rights=access.accounts,
            audit=access.audit,
            latencies=self._latencies,
            quotas=self._quotas,
        )
        self._open_short_way(dispatcher, store, access)
        self._declare_port(dispatcher)
        await self._server.start()
        stack.push_async_callback(self._server.stop)
        grpc_parts = GrpcPortParts(
            self.settings, self._server, self._tls, self._turn, self._clock, self._descriptor_share
        )
        self.grpc_address, self._grpc_problem = await open_grpc(stack, grpc_parts, state, access)
        if self._owns_resources:
            stack.push_async_callback(self.leave)
        await registration.announced()

    def _open_short_way(self, dispatcher: Dispatcher, store: MessageStore, access: AccessControl) -> None:
        """Let plain messages take lanes, unless more than accounts or the lead of a master has to be asked."""
        accounts = access.account_check
        if self.settings.is_slave or (access.guard is not None and accounts is None):
            return
        sends, transactions, quotas, audit = self._sends, self._transactions, self._quotas, dispatcher.audit

        def rules() -> object | None:
            if quotas.is_on or (audit is not None and not audit.codes.isdisjoint((SEND_CODE, END_CODE))):
                return None
            return (sends.lane_rules, access.accounts()) if self.term.accepts_writes() else None

        def rules_of_pulls() -> object | None:
            is_watched = quotas.is_on or (audit is not None and PULL_CODE in audit.codes)
            return None if is_watched or access.guard is not None else self._pulls.lane_rules

        def note_taken(message_count: int) -> None:
            sends.note_received(message_count)
            transactions.note_taken()

        lanes = sends.make_lanes(needs_signature=accounts is not None)
        transactions.use_lanes(lanes)
        if accounts is not None:
            accounts.use_lanes(lanes)
        durability, pulls = partial(store.durability, True), PlainPulls(self._pulls, rules_of_pulls, dispatcher)
        way = PlainSends(lanes, store.appender, durability, rules, note_taken, dispatcher.replies, pulls)
        dispatcher.use_short_way(way.admit)

    def _create_registration(self, topics: Topics, pool: Pool) -> Registration:
        registration = Registration(
            self.settings, topics, self._clock, pool, self.address, self.ha_address, self.term.is_current
        )
        topics.on_change = registration.topics_changed
        self._live_settings.subscribe(registration.apply_settings)
        self._live_settings.subscribe(topics.apply_settings)
        return registration

    def _raise_failure(self) -> None:
        failure = self.store.flushed.error
        has_space_again = self._has_space_again or (self.term.is_elected and opened_full(self.store))
        if isinstance(failure, StoreFailed) and not has_space_again:
            raise StoreFailed(str(failure)) from failure  # the same object could become its own context

    async def _load_state(self, store: MessageStore) -> BrokerState:
        settings = self.settings
        trusts_files = not self.term.is_elected
        if settings.is_slave:
            return BrokerState.of_slave(store, settings, self._clock)
        are_files_trusted = trusts_files and settings.role is not BrokerRole.SYNC_MASTER
        rules = JournalRules(are_files_trusted, lambda: self.term.is_alone)
        return await BrokerState.of_master(store, settings, self._clock, trusts_files, self._turn, rules)

    def _guard(self, guard: Guard | None) -> Guard | None:
        if self.settings.is_slave:
            return refusing(guard, is_elected=self.term.is_elected)
        if not self.term.is_elected:
            return guard
        in_sync = self.term.in_sync
        return refusing_once_over(guard, self.term.accepts_writes, in_sync.request_settle if in_sync else lambda: None)

    def _parts(
        self, store: MessageStore, state: BrokerState, registration: Registration, pool: Pool, may_send: MaySend
    ) -> tuple[Part, ...]:
        settings, clock, figures = self.settings, self._clock, self._figures
        announced, delays, folder = registration.announced, settings.delay_levels, settings.config_path
        topics, groups, offsets = state.topics, state.groups, state.offsets
        clients = Clients(clock)
        filters, consumption = Filters(settings.property_filter, clock), Consumption(clock, figures)
        level_redirect = delay_levels(delays, clock)
        time_redirect = timer_redirect(clock, settings.max_timer_s, settings.timers)
        rules = transaction_rules(settings)
        transactions = Transactions(store, topics, offsets, clients, clock, rules, figures, may_send)
        writer = Writer(store, settings.cluster, (transactions.redirect, time_redirect, level_redirect))
        delayed = DelayedDelivery(store, writer, level_redirect, delays, folder / "delayOffset.json", clock, figures)
        timed = partial(TimedDelivery, store, writer, time_redirect, clock, figures)
        role, is_over = self._role_parts(state, registration, pool, delayed, timed, transactions)
        repeated_sends = RepeatedSends(store, clock, settings.repeat_window_ms, figures)
        store_part_of_broker = store_part(store, self._turn, clock, figures, registration.refuse_writes)
        times = store.appender.put_times
        status = Status(settings, figures, clock, times, lambda: self._status() | repeated_sends.status_lines())
        young_bytes = memory_bytes(settings)
        pops = pops_of(store, state, writer, clock, self._turn, figures, young_bytes)
        quotas, accepts_writes = self._quotas, self.term.accepts_writes
        shared = SharedParts(
            store, writer, topics, groups, offsets, clients, consumption, clock, quotas, accepts_writes
        )
        reply_waiters = ReplyWaiters(clock)
        sends = SendHandler(shared, send_rules(settings, store), figures, repeated_sends, reply_waiters.note)
        pulls = PullHandler(shared, pull_rules(settings), filters)
        self._sends, self._pulls, self._transactions = sends, pulls, transactions
        retries = RetryHandler(shared, pops, settings.longest_pause_ms)
        self._subscribe_to_settings(store, groups, sends, pulls, figures)
        host, is_elected = store.settings.store_host, self.term.is_elected
        replies = ReplyRules(settings.cluster, settings.store_replies, host, is_elected)
        measured = Measured(figures, store, status, topics, groups, clients, consumption, offsets, registration)
        return (
            store_part_of_broker,
            *state.parts(settings.save_offsets_ms / 1000),
            *role,
            Part((TransactionHandler(store, transactions, clock),)),
            *batch_parts(shared, settings, figures),
            assignment_part(shared, state.modes, settings.namesrv, pool),
            pop_parts(shared, state.journal, pops, filters, settings),
            clients.part(),
            status.part(),
            consumption.part(),
            self._metrics_part(measured, state.pops),
            Part((sends, pulls, ReplyHandler(sends, clients, reply_waiters, replies, clock), retries)),
            Part((RecallHandler(shared, is_over, settings.recalls),)),
            Part((TopicHandler(shared, announced),)),
            Part((ClientHandler(shared, announced, filters, self._offers(repeated_sends)),)),
            lock_part(shared, state),
            Part((OffsetHandler(shared, delayed.progress, young_bytes, state.answer_commit_soon),)),
            *self._tool_parts(shared, pops, status, figures),
        )

    def _role_parts(
        self,
        state: BrokerState,
        registration: Registration,
        pool: Pool,
        delayed: DelayedDelivery,
        timed: Callable[[], TimedDelivery],
        transactions: Transactions,
    ) -> tuple[list[Part], IsOver]:
        save_offsets_s, save_delays_s = self.settings.save_offsets_ms / 1000, self.settings.save_delays_ms / 1000
        if self.settings.is_slave:
            followed = self._role.follow(state, delayed.progress, registration, pool)
            return [delayed.progress.part_of_slave(save_delays_s), *followed], lambda _: False  # it recalls no messages
        delivery = timed()
        delayed_parts = (delayed.part(save_delays_s), delivery.part(), transactions.part(save_offsets_s))
        return [*delayed_parts, *self._role.lead(pool)], delivery.is_over

    def _offers(self, repeated_sends: RepeatedSends) -> HeartBeatReply:
        max_s = self.settings.max_timer_s if self.settings.timers else None
        return HeartBeatReply(timer_max_delay_sec=max_s, repeat_window_ms=repeated_sends.window_ms, takes_reasons=True)

    def _tool_parts(self, shared: SharedParts, pops: PopState, status: Status, figures: Figures) -> tuple[Part, ...]:
        store = shared.store
        traffic = Traffic(store, shared.consumption, self.settings.cluster, self._clock, figures)
        handlers = (
            GroupHandler(shared, pops),
            ProgressHandler(shared, self.address, pops.table),
            QueryHandler(shared),
            CleaningHandler(shared),
            InspectHandler(self._live_settings, status, traffic, lambda: self._role.status()),
            LeadershipHandler(self.term, figures),
            RelayHandler(shared),
        )
        return (traffic.part(), Part(handlers))

    def _metrics_part(self, measured: Measured, pops: PopTable) -> Part:
        if not self.settings.is_measured:
            return Part()
        # This import takes 3 MB, so only a broker with metrics loads it.
        from sparrowmq.broker.metrics.prometheus import metrics_part

        latencies, ready = self._latencies, self._conditions.ready
        return metrics_part(self._metrics, self.settings, measured, pops, latencies, self._clock, ready)

    def _declare_port(self, dispatcher: Dispatcher) -> None:
        if not self.settings.is_measured:
            return
        from sparrowmq.metrics.server_figures import Port, declare_port

        declare_port(self._figures, Port(self._server, dispatcher, self._tls, self._client_tls))

    def _subscribe_to_settings(
        self, store: MessageStore, groups: Groups, sends: SendHandler, pulls: PullHandler, figures: Figures
    ) -> None:
        self._live_settings.subscribe(logs.apply_settings)
        self._live_settings.subscribe(self._latencies.apply_settings)
        self._live_settings.subscribe(lambda current: groups.allow_auto_create(current.auto_create_group))
        self._live_settings.subscribe(lambda current: sends.apply_rules(send_rules(current, store)))
        pulls.apply_rules(self._current_pull_rules(self.settings))
        self._role.high_watermark.on_change = lambda: pulls.apply_rules(
            self._current_pull_rules(self._live_settings.current)
        )
        pulls.held_pulls.declare_figures(figures)
        quotas = self._quotas
        self._live_settings.subscribe(lambda now: quotas.apply_rules(now.quotas))
        figures.counters(
            "sparrowmq_quota_refused_total",
            "requests and connections above a quota",
            ("subject", "limit"),
            lambda: quotas.refused.items(),
        )
        self._live_settings.subscribe(lambda now: pulls.apply_rules(self._current_pull_rules(now)))
        self._live_settings.subscribe(lambda now: apply_store_settings(now, store))

    def _probes(self) -> Iterable[Probe]:
        yield kinds.DRAINED, lambda: reduced_service(self.settings_now)
        yield kinds.LOG_NOT_WRITTEN, logs.problem
        yield kinds.CERTIFICATE, lambda: self._tls.problem
        yield kinds.CERTIFICATES_NOT_REQUIRED, lambda: self._tls.admits_without_certificate
        yield kinds.SETTINGS_NOT_SAVED, lambda: self._live_settings.problem
        yield kinds.CONNECTIONS_FULL, lambda: self._server.problem or self._grpc_problem()
        yield kinds.QUOTA_USED_UP, lambda: self._quotas.recent_refusals.last
        if self.term.is_elected and self.freed_space is None:  # DISK_FULL has the remedy otherwise
            yield kinds.NO_MASTER, self.term.problem

    def _status(self) -> dict[str, str]:
        table = self.term.status_lines()
        problem = self._role.problem
        if problem:
            table = table | {"replicationProblem": problem}
        return table | self._conditions.as_properties()

    def _current_pull_rules(self, settings: BrokerSettings) -> PullRules:
        rules = pull_rules(settings)
        return replace(rules, serves=False) if self._role.high_watermark.is_hidden else rules


class MemberResources:
    """The files and connections of one broker, or of the brokers of one member. Raises: ConfigError.

    A member ends one broker and starts another to change its role. Files that change (certificates, accounts) are
    loaded again; while they cannot be used, the old content counts, also for the next broker. The port for metrics
    answers between two brokers, too; a broker without failover opens its own.
    """

    def __init__(self, settings: BrokerSettings, clock: Clock) -> None:
        self.tls = ServerTls(settings, clock)
        self.client_tls = client_context(settings) if settings.talks_tls else None
        self.accounts: AccountFiles | None = None
        self.metrics: Endpoint | None = None
        self._settings = settings
        self._clock = clock
        self._pool: Pool | None = None

    @property
    def pool(self) -> Pool:
        if self._pool is None:
            self._pool = Pool(self._clock, sign=sign_of(self._settings), tls=self.client_tls)
        return self._pool

    async def open_metrics(self, spawn: Spawn, reason: Callable[[], str]) -> None:
        """Open the port for metrics, if the settings want it; `reason` says why no broker runs. Raises: ConfigError."""
        door = metrics_listener(self._settings, self._settings.bind_address, self._settings.insecure)
        if door is None:
            return
        # A broker without metrics does not load these modules.
        from sparrowmq.metrics.http_endpoint import Answer, Endpoint

        async def absent(_: Query) -> Answer:
            return Answer(503, f"{reason()}\n".encode())

        async def alive(_: Query) -> Answer:
            return Answer(200, b"ok\n")

        listens = asyncio.Event()
        self.metrics = Endpoint(door, {"/metrics": absent, "/healthz": alive, "/readyz": absent})
        spawn(self.metrics.run(listens.set), "metrics")
        await listens.wait()

    async def disconnect(self) -> None:
        """End the connections, so that name servers forget the broker. The next broker gets others."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.__aexit__()


def _not_started(session: Session, command: Command) -> None:
    """Stand in for the dispatcher until the broker listens; never called."""


def send_rules(settings: BrokerSettings, store: MessageStore) -> SendRules:
    return SendRules(settings.max_message_bytes, store.settings.store_host, settings.name)


def pull_rules(settings: BrokerSettings) -> PullRules:
    rules = PullRules(
        settings.name,
        settings.max_pull_messages,
        settings.max_pull_bytes,
        near_bytes=memory_bytes(settings) if settings.slave_reads else None,
        serves=settings.slave_reads or not settings.is_slave,
        keeps_offsets=not settings.is_slave,
        held_limits=HeldLimits(settings.max_held_pulls, settings.max_held_pulls_of_one),
    )
    return rules if settings.long_polling else replace(rules, longest_hold_ms=settings.short_polling_ms)


def transaction_rules(settings: BrokerSettings) -> TransactionRules:
    return TransactionRules(
        timeout_ms=settings.transaction_timeout_ms,
        interval_ms=settings.transaction_interval_ms,
        most_checks=settings.transaction_checks,
        retention_ms=settings.retention_h * 3_600_000,
        rejected=settings.reject_transactions,
        is_slave=settings.is_slave,
    )


def memory_bytes(settings: BrokerSettings) -> int:
    memory_size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return settings.memory_percent * memory_size // 100


def apply_store_settings(settings: BrokerSettings, store: MessageStore) -> None:
    store.settings = settings.of_running_store(store.settings)


def reduced_service(settings: BrokerSettings) -> str:
    missing = _MISSING.get(settings.permission & Perm.READ_WRITE, "neither takes nor gives messages")
    reasons = [f"it {missing}: brokerPermission = {settings.permission}"] if missing else []
    return "; ".join([*reasons, "producers do not find it: drained = true"] if settings.drained else reasons)


def remedy_words(settings: BrokerSettings, file: Path | None) -> dict[str, str]:
    return {
        "NAME": settings.name,
        "STORE": str(settings.store_path),
        "CONF": str(file or ""),
        "DENIED": str(denials_file(settings.audit_file)),
    }
