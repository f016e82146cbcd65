"""`sparrowmq bench`: what a cluster takes, and how quickly; ours, or Apache's.

One process with the asynchronous client sends over real connections to an existing topic. A broker takes more than one
such process can send: run several at once and add up their figures. Source of what is measured: benchmark/Producer and
Consumer, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count as counting
from math import inf
from typing import Any, Final

import click

from sparrowmq.cli.terminal.cluster_command import HELP, chosen_timeout_s, run_with_client, verb
from sparrowmq.cli.terminal.output import Table, is_for_people, print_tables, say, split_heads
from sparrowmq.client.client import Client
from sparrowmq.client.consuming.consumer import Consumer
from sparrowmq.client.consuming.consumer_settings import Start
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.client.sending.producer import Producer
from sparrowmq.client.sending.producer_settings import ProducerSettings
from sparrowmq.client.sending.send_result import SendResult, SendStatus
from sparrowmq.core.stats import Histogram
from sparrowmq.errors import NoRoute, RemoteError, RemoteProtocolError, SendManyFailed, SparrowError
from sparrowmq.loop.clock import Clock, SystemClock
from sparrowmq.protocol.messages.message import Message
from sparrowmq.protocol.names import TOOLS_GROUP, check_topic
from sparrowmq.settings.argument_types import ABOVE_ZERO, Number, Whole

GROUP: Final = "SPARROWMQ_BENCH"
DEFAULT_S: Final = 10.0
MESSAGES_PER_TAKE: Final = 512  # messages taken from the client's buffer in one step
MAX_BODY_BYTES: Final = (16 << 20) - (64 << 10)  # no frame is larger than 16 MiB, and there is more in it
MIN_RATE: Final = 0.001
MAX_RATE: Final = 1e7
MAX_PROPERTIES: Final = 1000
MAX_IN_FLIGHT: Final = 65_536
MAX_DELAY_LEVEL: Final = 18
MIN_WAIT_S: Final = 0.001  # an event loop wakes no more exactly, so shorter waits are skipped
FIGURE_HEADS: Final = split_heads("MESSAGES|SECONDS|MESSAGES/S|MB/S|P50 MS|P95 MS|P99 MS|GREATEST MS|FAILED")
ERROR_HEADS: Final = ("ERROR", "COUNT", "THE FIRST")
REPORT_PERIOD_S: Final = 1.0

_SECONDS_OPTION: Final = click.option(
    "--seconds", type=ABOVE_ZERO, help=f"End after so long; without --count after {DEFAULT_S:.0f}."
)
_COUNT_OPTION: Final = click.option("--count", type=Whole(1), help="End after so many messages.")


@click.group(context_settings=HELP)
def bench() -> None:
    """Measure what a cluster takes, and how quickly it answers.

    The summary has the messages that are certain, how long it took, and of each message's milliseconds the quantiles
    and the greatest (quantiles are up to an eighth too high). Ctrl-C ends early with a summary. The exit status is 1
    if anything failed.
    """


# Send ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Load:
    """The messages of a run, and the number in flight."""

    size: int
    in_flight: int
    batch: int
    tag: str | None
    keys: bool
    properties: int
    delay_level: int

    def settings(self, timeout_s: float) -> ProducerSettings:
        """Compress nothing, so that sizes are as given; brokers judge which message is too large."""
        usual = ProducerSettings()
        return ProducerSettings(
            timeout_s=timeout_s,
            max_bytes=max(usual.max_bytes, self.size),
            compress_over_bytes=max(usual.max_bytes, self.size),
            window=self.in_flight,
        )

    @property
    def max_requests(self) -> int:
        """Requests in flight: no more than fit into the window of bytes of the client, where others would wait."""
        return min(self.in_flight, -(-ProducerSettings().window_bytes // (self.size * self.batch)))

    def messages(self, topic: str) -> Iterator[Message]:
        """Yield messages that differ only in their key."""
        body = (b"0123456789" * (self.size // 10 + 1))[: self.size]
        extra_properties = {f"property{number}": f"value{number}" for number in range(self.properties)}
        message = Message(topic, body, self.tag, properties=extra_properties, delay_level=self.delay_level)
        run_id = uuid.uuid4().hex[:8]
        for number in counting():
            if self.keys:
                message = Message(
                    topic, body, self.tag, f"{run_id}-{number}", extra_properties, delay_level=self.delay_level
                )
            yield message


@verb(bench)
@click.argument("topic")
@_SECONDS_OPTION
@_COUNT_OPTION
@click.option("--size", type=Whole(1, MAX_BODY_BYTES), default=128, show_default=True, help="Bytes of a body.")
@click.option(
    "--in-flight",
    type=Whole(1, MAX_IN_FLIGHT),
    default=64,
    show_default=True,
    help="Requests that wait for their answers at once.",
)
@click.option("--rate", type=Number(MIN_RATE, MAX_RATE), help="Messages per second; without it as many as possible.")
@click.option("--batch", type=Whole(1, 10_000), default=1, help="Messages in a request.")
@click.option("--tag", help="A word that consumers can filter by.")
@click.option("--keys", is_flag=True, help="Give each message a key of its own, which the broker indexes.")
@click.option("--properties", type=Whole(0, MAX_PROPERTIES), default=0, help="So many properties for each.")
@click.option("--delay-level", type=Whole(0, MAX_DELAY_LEVEL), default=0, help="Deliver them later: 3 is 10 s.")
def send(topic: str, seconds: float | None, count: int | None, rate: float | None, **load: Any) -> None:
    """Send messages to TOPIC, as many as possible or at a --rate, and report the rate and latencies.

    A message's time is from when it leaves until it is acknowledged, with its retries, but without the wait for its
    turn. What a broker stores less safely than it is set to counts as failed.
    """

    async def run(mq: Client) -> Tally:
        clock = SystemClock()
        await _check_topic_exists(mq, topic)
        plan = Load(**load)
        if plan.max_requests < plan.in_flight:
            say(f"requests are so large that {plan.max_requests} at once are in flight, not {plan.in_flight}")
        sender = Sender(mq.producer(GROUP, plan.settings(chosen_timeout_s())), plan, topic, clock)
        turns = Turns(clock, count, _limit_s(seconds, count), rate)
        with interrupting(turns.stop), _progress_lines(sender.tally, "sent"):
            await sender.run(turns)
        return sender.tally

    _print_summary(run_with_client(run))


class Sender:
    """Sends what a load says, until there are no more turns."""

    def __init__(self, producer: Producer, load: Load, topic: str, clock: Clock) -> None:
        self.tally = Tally(clock)
        self._producer = producer
        self._load = load
        self._messages = load.messages(topic)

    async def run(self, turns: Turns) -> None:
        """Send one request alone, which shows whether any can succeed; then the others. Raises: SparrowError."""
        if count := await turns.take(self._load.batch):
            await self._send(count)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._load.max_requests):
                tasks.create_task(self._keep_sending(turns))

    async def _keep_sending(self, turns: Turns) -> None:
        while count := await turns.take(self._load.batch):
            try:
                await self._send(count)
            except SparrowError as error:
                self.tally.fail(error, count=count)

    async def _send(self, count: int) -> None:
        """Send one request. Raises: SparrowError, none of its messages is acknowledged."""
        begun_ns = time.perf_counter_ns()
        if count == 1:
            results: list[Any] = [await self._producer.send(next(self._messages))]
        else:
            try:
                results = [*await self._producer.send_many([next(self._messages) for _ in range(count)])]
            except SendManyFailed as error:
                results = error.results
                if not any(isinstance(result, SendResult) for result in results):
                    raise
        took_us = (time.perf_counter_ns() - begun_ns) // 1000
        ok_count = 0
        for result in results:
            if isinstance(result, BaseException):
                self.tally.fail(result)
            elif result.status is not SendStatus.OK:
                self.tally.fail(result.status.name, "stored, but less safely than the broker is set to")
            else:
                ok_count += 1
        if ok_count:
            self.tally.add(ok_count, ok_count * self._load.size, took_us)


# Consume ------------------------------------------------------------------------------------------------------------


@verb(bench)
@click.argument("topic")
@click.option("--group", help="Consume as a member of this group; by default a new one, deleted in the end.")
@_SECONDS_OPTION
@_COUNT_OPTION
@click.option("--tag", help="Those with one of these tags: A, or 'A || B'.")
@click.option("--where", help="Those whose properties fit this SQL92 expression: 'amount > 5'.")
@click.option(
    "--start",
    type=click.Choice(["earliest", "latest"]),
    default="earliest",
    show_default=True,
    help="Where a group begins that has consumed nothing yet: at the oldest message, or with new ones.",
)
def consume(topic: str, group: str | None, seconds: float | None, count: int | None, start: str, **chosen: Any) -> None:
    """Consume the messages of TOPIC, and report the rate and latencies.

    A message's time is from when its sender made it until it is here; the clocks of both machines must agree. Messages
    that were stored before the start have no time.
    """

    async def run(mq: Client) -> Tally:
        await _check_readable(mq, topic)
        async with _group(mq, group) as name:
            begin: Start = "new" if start == "latest" else "earliest"
            consumer = mq.subscribe(topic, group=name, start=begin, **chosen)
            async with consumer:
                taker = MessageTaker(consumer, SystemClock())
                await taker.run(count, _limit_s(seconds, count))
        return taker.tally

    tally = run_with_client(run)
    if not tally.messages:
        say("no message arrived; has the group consumed the topic before, or does the filter match nothing?")
    _print_summary(tally)


class MessageTaker:
    def __init__(self, consumer: Consumer, clock: Clock) -> None:
        self.tally = Tally(clock)
        self._consumer = consumer
        self._clock = clock
        self._begun_ms = clock.now_ms()

    async def run(self, count: int | None, seconds: float | None) -> None:
        """Consume until the count, the time limit or Ctrl-C. Raises: ConfigError, a broker cannot filter so."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds) as limit:

                def end() -> None:
                    if not limit.expired():
                        limit.reschedule(0)

                with interrupting(end), _progress_lines(self.tally, "consumed"):
                    await self._take(sys.maxsize if count is None else count)

    async def _take(self, count: int) -> None:
        while count > 0 and (messages := await self._consumer.take(min(MESSAGES_PER_TAKE, count))):
            now_ms = self._clock.now_ms()
            for message in messages:
                self._count(message, now_ms)
                message.ack()
            count -= len(messages)
            await asyncio.sleep(0)  # Where a backlog is always there already, nothing else would have its turn.

    def _count(self, message: ReceivedMessage, now_ms: int) -> None:
        try:
            size = len(message.body)
        except RemoteProtocolError as error:
            self.tally.fail(error)
            return
        is_new = message.born_timestamp_ms >= self._begun_ms
        self.tally.add(1, size, 1000 * (now_ms - message.born_timestamp_ms) if is_new else None)


@asynccontextmanager
async def _group(mq: Client, name: str | None) -> AsyncIterator[str]:
    """Yield the given group, or a new one that is deleted at the end."""
    if name is not None:
        yield name
        return
    name = f"{GROUP}_{uuid.uuid4().hex[:12]}"
    await mq.admin.create_group(name)
    try:
        yield name
    finally:
        await mq.admin.delete_group(name)


# What both share ----------------------------------------------------------------------------------------------------


async def _check_topic_exists(mq: Client, topic: str) -> None:
    """Raises: InvalidName; ClickException, there is no such topic, and no broker makes it."""
    check_topic(topic)
    try:
        await mq.queues(topic)
    except NoRoute:
        raise _missing_topic_error(topic) from None


async def _check_readable(mq: Client, topic: str) -> None:
    """Raises: InvalidName; ClickException, the topic does not exist, or no client may read it."""
    check_topic(topic)
    async with mq.pull_consumer(group=TOOLS_GROUP) as reader:
        try:
            queues = await reader.queues(topic)
        except NoRoute:
            raise _missing_topic_error(topic) from None
    if not queues:
        raise click.ClickException(
            f"no client may read topic {topic}; `sparrowmq topic change {topic} --perm rw` gives the permission"
        )


def _missing_topic_error(topic: str) -> click.ClickException:
    return click.ClickException(f"there is no topic {topic}; `sparrowmq topic create {topic}` makes it")


def _limit_s(seconds: float | None, count: int | None) -> float | None:
    return DEFAULT_S if seconds is None and count is None else seconds


@contextmanager
def _progress_lines(tally: Tally, word: str) -> Iterator[None]:
    if not (is_for_people() and sys.stderr.isatty()):
        yield
        return
    with tally.reporting(word, partial(click.echo, err=True)):
        yield


def _print_summary(tally: Tally) -> None:
    if is_for_people() and not tally.failed_count:
        print_tables(figures=tally.figures)
    else:
        print_tables(figures=tally.figures, errors=tally.errors)
    if tally.failed_count:
        sys.exit(1)


class Turns:
    """Hands out turns, one for each message, to any number of takers; begins when it is made.

    At a rate (turns a second) the turn of message n is due n / rate after the begin. So what a stall of the cluster
    held up is caught up. Without `count`, `seconds` or `rate` there is no such limit.
    """

    def __init__(
        self, clock: Clock, count: int | None = None, seconds: float | None = None, rate: float | None = None
    ) -> None:
        self._clock = clock
        self._remaining = sys.maxsize if count is None else count
        self._begun_s = clock.monotonic()
        self._end_s = self._begun_s + (inf if seconds is None else seconds)
        self._rate = rate
        self._handed_out = 0
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        self._stopped.set()

    @property
    def is_over(self) -> bool:
        return self._stopped.is_set() or self._clock.monotonic() >= self._end_s

    async def take(self, limit: int = 1) -> int:
        """Wait for the next turn, and take up to `limit` of them at once; 0 when all is over."""
        count = min(limit, self._remaining)
        if count <= 0 or self.is_over:
            return 0
        due_s = self._begun_s + self._handed_out / self._rate if self._rate else 0.0
        self._remaining -= count
        self._handed_out += count
        if due_s >= self._end_s:
            return 0
        wait_s = due_s - self._clock.monotonic()
        if wait_s > MIN_WAIT_S:
            with suppress(TimeoutError):
                await self._clock.wait_for(self._stopped.wait(), wait_s)
        return 0 if self._stopped.is_set() else count


@contextmanager
def interrupting(stop: Callable[[], None]) -> Iterator[None]:
    """Inside the `with`, the first Ctrl-C calls `stop`, and the second ends the program.

    Where an event loop cannot handle signals (Windows, other threads), the first one ends the program.
    """
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        stop()

    try:
        loop.add_signal_handler(signal.SIGINT, on_signal)
    except (NotImplementedError, RuntimeError, ValueError):
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


class Tally:
    """The result of a run: counts messages from its creation on.

    messages    those that are certain: acknowledged by the broker, or handled here
    seconds     from the start to the last of them
    MB          1,000,000 bytes of bodies
    quantiles   at most 12.5 % too high, never too low, as `Histogram` keeps them
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun_s = self._last_s = clock.monotonic()
        self.messages = 0
        self.bytes = 0
        self._took_us = Histogram()
        self._errors: dict[str, tuple[int, str]] = {}  # how often, and what the first one said
        # Since the last line:
        self._last_line = (0, 0, self._begun_s)
        self._lately_us = Histogram()

    def add(self, count: int, size_bytes: int, took_us: int | None) -> None:
        """Count messages that succeeded, and the time that each took; None if it is unknown."""
        self.messages += count
        self.bytes += size_bytes
        self._last_s = self._clock.monotonic()
        if took_us is not None:
            self._took_us.record(took_us, count)
            self._lately_us.record(took_us, count)

    def fail(self, error: BaseException | str, text: str = "", count: int = 1) -> None:
        """Count messages that failed, by an error or by a name."""
        name = error if isinstance(error, str) else name_of(error)
        previous_count, first = self._errors.get(name, (0, text or str(error)))
        self._errors[name] = (previous_count + count, first)

    @property
    def failed_count(self) -> int:
        return sum(count for count, _ in self._errors.values())

    @property
    def figures(self) -> Table:
        """One row: the result of the run."""
        seconds = self._last_s - self._begun_s
        quantiles = [self._took_us.quantile(share) for share in (0.5, 0.95, 0.99)]
        took = [_ms(us) if self._took_us.count else None for us in (*quantiles, self._took_us.greatest)]
        pace = round(_per_second(self.messages, seconds)), round(_per_second(self.bytes, seconds) / 1e6, 3)
        return FIGURE_HEADS, [(self.messages, round(seconds, 3), *pace, *took, self.failed_count)]

    @property
    def errors(self) -> Table:
        """A row for each kind of failure, the most frequent first."""
        most_frequent_first = sorted(self._errors.items(), key=lambda error: -error[1][0])
        return ERROR_HEADS, [(name, count, first) for name, (count, first) in most_frequent_first]

    def progress_line(self, word: str) -> str:
        """Return the progress since the last line; `word` is what was done to the messages."""
        now_s, (messages, size, then_s) = self._clock.monotonic(), self._last_line
        self._last_line = self.messages, self.bytes, now_s
        lately, self._lately_us = self._lately_us, Histogram()
        count = _per_second(self.messages - messages, now_s - then_s)
        megabytes = _per_second(self.bytes - size, now_s - then_s) / 1e6
        took = f"mean {lately.mean / 1000:.2f} ms   greatest {_ms(lately.greatest):.2f} ms"
        return (
            f"{now_s - self._begun_s:5.0f} s   {count:9,.0f} {word}/s   {megabytes:8.2f} MB/s   "
            f"{took if lately.count else 'no times'}   {self.failed_count:,} failed"
        )

    @contextmanager
    def reporting(self, word: str, report: Callable[[str], object]) -> Iterator[None]:
        """Pass a line to `report` each second inside the `with`."""

        def print_line() -> None:
            report(self.progress_line(word))
            timers[0] = self._clock.call_later(REPORT_PERIOD_S, print_line)

        timers = [self._clock.call_later(REPORT_PERIOD_S, print_line)]
        try:
            yield
        finally:
            timers[0].cancel()


def name_of(error: BaseException) -> str:
    """Return the name under which failures are counted: the cause's class, with the code of a peer's answer."""
    cause = getattr(error, "cause", None) or error
    name = type(cause).__name__
    return f"{name} {cause.code}" if isinstance(cause, RemoteError) else name


def _ms(us: int) -> float:
    return round(us / 1000, 3)


def _per_second(count: float, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0
