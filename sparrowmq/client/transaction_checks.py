"""Answers brokers that ask for the end of a transaction, by the checks of a client's producer groups.

    broker ── 39, one-way ──> Checks.ask ── waits ── the group's check ── True, False, None ── 37, one-way ──> broker

The settings limit the checks of a group that run at once, and the questions that wait. Further questions are dropped;
the broker repeats them after a minute. A check that raises, or takes too long, answers "not known yet".
Source: DefaultMQProducerImpl.checkTransactionState and initTransactionEnv, Java 4.9.8.
"""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from sparrowmq.client.arguments import check_callable, is_stray
from sparrowmq.client.consuming.handler_thread import HandlerThread, in_thread
from sparrowmq.client.consuming.received_message import ReceivedMessage, is_ending
from sparrowmq.client.sending.producer_settings import check_timeout
from sparrowmq.client.sending.transaction import END_FLAGS, End, OnEnd
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import ConfigError
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.tasks import Spawn
from sparrowmq.protocol.messages.message import MessageQueue, Property, StoredMessage
from sparrowmq.protocol.requests.headers import CheckTransactionState, EndTransaction
from sparrowmq.remoting.log_limit import LogLimit
from sparrowmq.remoting.peer import Peer

log = logging.getLogger(__name__)
Check: TypeAlias = Callable[[ReceivedMessage], "bool | Awaitable[bool | None] | None"]


@dataclass(frozen=True, slots=True)
class CheckSettings:
    """The settings of a check. The names in brackets are Java's.

    Attributes:
        concurrency: checks that run at once (checkThreadPoolMaxSize).
        waiting: questions that wait for a check; brokers repeat those that are dropped (checkRequestHoldMax).
        timeout_s: the time limit of a check; then the answer is "not known yet".
    """

    concurrency: int = 16
    waiting: int = 2000
    timeout_s: float = 60.0

    def __post_init__(self) -> None:
        check_timeout(self.timeout_s)
        for name in ("concurrency", "waiting"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(f"{name}={value!r}: give a whole number above 0")


@dataclass(frozen=True, slots=True)
class _Question:
    message: ReceivedMessage
    header: CheckTransactionState
    peer: Peer


class Checks:
    """The checks of one client, by producer group. `on_end` gets every end that was sent to a broker."""

    def __init__(self, spawn: Spawn, clock: Clock, namespace: str) -> None:
        self.spawn = spawn
        self.clock = clock
        self._namespace = namespace
        self.log_limit = LogLimit(clock)
        self._by_group: dict[str, _Checker] = {}
        self.on_end: OnEnd | None = None

    def add(self, group: str, check: Check, settings: CheckSettings) -> None:
        """Add the check of a group, by its full name. Raises: ConfigError, it cannot be called, or there is one."""
        check_callable("check", check, "a function of one message", takes=1)
        if group in self._by_group:
            raise ConfigError(f"producer group {group} has a check already")
        self._by_group[group] = _Checker(self, group, check, settings)

    def has(self, group: str) -> bool:
        return group in self._by_group

    def take_question(self, header: CheckTransactionState, stored: StoredMessage, peer: Peer) -> None:
        """Take a broker's question; the broker gets the answer of the check."""
        group = stored.properties.get(Property.PGROUP, "")
        checker = self._by_group.get(group)
        if checker is None:
            text = "%s asks about a transaction of group %s, which has no check here"
            self.log_limit.log(log, logging.WARNING, text, peer.address, shown(group))
            return
        queue = MessageQueue(stored.topic, peer.address, stored.queue_id)
        message = ReceivedMessage(stored, queue, namespace=self._namespace)
        checker.put(_Question(message, header, peer))

    def report_end(self, end: End) -> None:
        """Report an end that was sent to a broker."""
        if self.on_end is not None:
            self.on_end(end)


class _Checker:
    def __init__(self, checks: Checks, group: str, check: Check, settings: CheckSettings) -> None:
        self._checks = checks
        self._group = group
        self._check = check
        self._settings = settings
        self._questions: deque[_Question] = deque()
        self._running_count = 0

    def put(self, question: _Question) -> None:
        if len(self._questions) >= self._settings.waiting:
            text = "too many checks of group %s wait; %r is left to be asked again"
            self._checks.log_limit.log(log, logging.WARNING, text, self._group, question.message)
            return
        self._questions.append(question)
        if self._running_count < self._settings.concurrency:
            self._running_count += 1
            self._checks.spawn(self._work(), f"check {self._group}")

    async def _work(self) -> None:
        """Answer the waiting questions, and end."""
        call, thread = in_thread(self._check, f"check {self._group}")
        try:
            while self._questions:
                question, timeout_s = self._questions.popleft(), self._settings.timeout_s
                try:
                    commit = await self._checks.clock.wait_for(self._run_check(call, question.message), timeout_s)
                except TimeoutError:
                    log.error("the check of group %s has had %r for %g s", self._group, question.message, timeout_s)
                    _end(thread)  # A check that takes too long keeps its thread.
                    call, thread = in_thread(self._check, f"check {self._group}")
                    commit = None
                self._checks.report_end(_answer(question, self._group, commit))
        finally:
            self._running_count -= 1
            _end(thread)

    async def _run_check(self, call: Callable[[ReceivedMessage], Any], message: ReceivedMessage) -> bool | None:
        """The answer of the check; None if the check raises, even its own TimeoutError."""
        try:
            result = call(message)
            if inspect.isawaitable(result):
                result = await result
        except BaseException as error:
            # Also a panic of a Rust extension, or a CancelledError of what the check awaited.
            if is_ending(error, is_stray=is_stray()):
                raise
            log.exception("the check of group %s failed for %r; the broker asks again", self._group, message)
            return None
        if result is None or isinstance(result, bool):
            return result
        log.error("the check of group %s returned %r; return True, False or None", self._group, result)
        return None


def _end(thread: HandlerThread | None) -> None:
    if thread is not None:
        thread.end()


def _answer(question: _Question, group: str, commit: bool | None) -> End:
    header, message = question.header, question.message
    request = EndTransaction(
        producer_group=group,
        tran_state_table_offset=header.tran_state_table_offset,
        commit_log_offset=header.commit_log_offset,
        commit_or_rollback=END_FLAGS[commit],
        msg_id=message.msg_id,
        topic=message.full_topic,
        from_transaction_check=True,
        transaction_id=header.transaction_id,
    )
    question.peer.tell(request)
    return End(request, question.peer.address, message.tag, message.keys, commit)
