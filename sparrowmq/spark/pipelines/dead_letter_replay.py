"""The pipeline `dlq-replay`: a group's dead letters, sent to it again.

    %DLQ%billing  ->  chosen by tag, time and properties  ->  %RETRY%billing, so many a second

Only that group gets them, and its tries begin again. A journal has a line of JSON for each message, with its outcome.
The next run skips the messages in the journal. A killed run has sent at most one message more than its journal says.
Before it sends, it compares the last message of the journal in each queue with that of the broker. If the topic was
deleted and made again, the journal names the offsets of other messages.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, Unpack

from sparrowmq.admin.dead_letters import packed_retry
from sparrowmq.client.cluster.blocking_network import BlockingNetwork, BrokersAway
from sparrowmq.errors import ConfigError, InvalidFilter, NoRoute, RemoteError
from sparrowmq.filter.grammar import parse as parse_filter
from sparrowmq.filter.tree import Filter, Texts
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message import MessageQueue, StoredMessage
from sparrowmq.protocol.names import TOOLS_GROUP, check_group, dlq_topic
from sparrowmq.protocol.subscription import ALL, check_tags, parse_tags
from sparrowmq.spark.options import SourceOptions, parse
from sparrowmq.spark.pipelines.running.folders import lock_file
from sparrowmq.spark.pipelines.running.report import Report, Say
from sparrowmq.spark.pipelines.running.runner import Runner, RunningWithoutSpark
from sparrowmq.spark.pipelines.running.span import Span, offsets_by_topic, since_until, span_of
from sparrowmq.spark.source.partition_ranges import Offsets, between
from sparrowmq.spark.source.pulls import Pulls
from sparrowmq.spark.worker import Pace, check_stored, connect, may_pass

SENT: Final = "sent"
PASSED_OVER: Final = "passed over"
REFUSED: Final = "refused"
_MESSAGES_PER_PROGRESS_LINE: Final = 1000


def dlq_replay(
    group: str,
    *,
    name_server: str,
    journal: str | Path,
    tags: str = ALL,
    where: str | None = None,
    since: str | None = None,
    until: str | None = None,
    rate: float | None = None,
    sleep: Callable[[float], None] = time.sleep,
    **running: Unpack[RunningWithoutSpark],
) -> Report:
    """Send dead letters to their group again.

    Args:
        journal: a file; what it names is not sent again. Journals of several groups may be one.
        tags: `a || b`. where: an SQL92 expression over properties. Both must hold.
        since, until: only what became a dead letter at or after the one, and before the other.
        rate: at most so many a second.
    Raises:
        ConfigError: an argument is wrong, another run has the journal, or its messages were deleted with their topic.
        NetworkError: a broker is away; the next run goes on.
    """
    topic = dlq_topic(check_group(group))
    if rate is not None and not rate > 0:
        raise ConfigError(f"rate={rate} sends nothing; give messages per second, more than 0")
    runner = Runner(**running)
    report = runner.report
    source_options = {**(runner.options or {}), "nameServer": name_server, "topic": topic}
    source_options |= since_until(since, until)
    letters = LetterFilter(tags, where)
    span = _dead_letter_span(group, source_options, runner.say)
    options = parse(SourceOptions, source_options)
    with runner.timed(), ExitStack() as stack:
        journal_file = None if runner.dry_run else stack.enter_context(_locked_journal(Path(journal)))
        span, last_entries = _remaining(span, topic, Path(journal))
        if not any(name.lower().startswith("ending") for name in source_options):
            for queue in last_entries.keys() & span.end.keys():
                if last_entries[queue].end > span.end[queue]:
                    last_entries[queue].check("", queue, Path(journal))
        report.offsets = offsets_by_topic(span.end)
        if journal_file is not None:
            journal_file.truncate(len(_whole_lines(Path(journal))))
        network = stack.enter_context(connect(options))
        replay = Replay(network, group, journal_file, report, None if rate is None else Pace(rate, sleep))
        for message, queue in _messages(network, span, options):
            if queue in last_entries and message.queue_offset < last_entries[queue].end:
                last_entries[queue].check(message.message_id, queue, Path(journal))
                continue
            replay.settle(message, queue, is_wanted=letters.matches(message))
            if report.add_read(1) % _MESSAGES_PER_PROGRESS_LINE == 0:
                runner.say(f"{report.read:,} looked at, {report.written:,} sent, {report.errors:,} refused")
    return report


class LetterFilter:
    """Which dead letters to send. Raises: ConfigError."""

    def __init__(self, tags: str, where: str | None) -> None:
        check_tags(tags)
        self._tags = None if tags == ALL else frozenset(parse_tags(tags))
        self._where = _parse_where(where) if where else None

    def matches(self, message: StoredMessage) -> bool:
        if self._tags is not None and message.tags not in self._tags:
            return False
        if self._where is None:
            return True
        return self._where.matches(Texts([message.properties.get(name) for name in self._where.names]))


class Replay:
    """Sends messages one by one, and notes each; without a journal it only counts."""

    def __init__(
        self, network: BlockingNetwork, group: str, journal: IO[str] | None, report: Report, pace: Pace | None
    ) -> None:
        self._network = network
        self._group = group
        self._journal = journal
        self._report = report
        self._pace = pace

    def settle(self, message: StoredMessage, queue: MessageQueue, *, is_wanted: bool) -> None:
        """Raises: NetworkError, RemoteError that passes: the message is not noted, and the next run's first."""
        outcome, reason = PASSED_OVER, None
        if is_wanted:
            try:
                self._send(message, queue)
                outcome, self._report.written = SENT, self._report.written + 1
            except RemoteError as error:
                if may_pass(error):
                    raise
                outcome, reason, self._report.errors = REFUSED, str(error), self._report.errors + 1
        self._write_journal_line(message, queue, outcome, reason)

    def _send(self, message: StoredMessage, queue: MessageQueue) -> None:
        if self._journal is None:
            return
        if self._pace is not None:
            self._pace.wait()
            self._pace.count_rows(1)
        packed = packed_retry(message, self._group)
        request = packed.request(
            TOOLS_GROUP, MessageQueue(packed.topic, queue.broker_name, 0), time.time_ns() // 1_000_000
        )

        def send() -> None:
            connection = self._network.link_to_master(queue)
            check_stored(request, connection.wait(connection.send(request, packed.body)))

        self._network.retrying(send)

    def _write_journal_line(
        self, message: StoredMessage, queue: MessageQueue, outcome: str, reason: str | None
    ) -> None:
        if self._journal is None:
            return
        line: dict[str, Any] = {
            "topic": queue.topic,
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "offset": message.queue_offset,
            "msgId": message.message_id,
            "keys": message.keys,
            "outcome": outcome,
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }
        self._journal.write(json.dumps(line | ({"reason": reason} if reason else {})) + "\n")
        self._journal.flush()


def _dead_letter_span(group: str, source_options: Mapping[str, str], say: Say) -> Span:
    """Return the dead letters that exist now. Raises: as `span_of`; BrokersAway, no broker is there."""
    try:
        return span_of(source_options)
    except NoRoute:
        options = parse(SourceOptions, source_options)
        with connect(options) as network:
            if not network.retrying(network.has_brokers):
                raise BrokersAway(
                    f"no name server knows a broker now, so the dead letters of group {group} are not known; "
                    "run it again once brokers are there"
                ) from None
        say(
            f"group {group} has no dead letters: there is no topic {source_options['topic']}; "
            "check the name of the group"
        )
        return Span({}, Offsets())


class _LastEntry(NamedTuple):
    """The last message of a queue in the journal: the offset behind it, and its id."""

    end: int
    message_id: str

    def check(self, message_id: str, queue: MessageQueue, journal: Path) -> None:
        """Raises: ConfigError, the broker has another message at this offset."""
        if message_id != self.message_id:
            raise ConfigError(
                f"{journal} names {self.message_id} at offset {self.end - 1} of {queue}, and the broker has "
                f"{message_id or 'nothing'} there: the topic was deleted and made again; name another journal"
            )


def _remaining(span: Span, topic: str, journal: Path) -> tuple[Span, dict[MessageQueue, _LastEntry]]:
    """Return a span from the journal's last messages on, and these. Raises: ConfigError; BrokersAway, no topic."""
    start = dict(span.start)
    last_entries = {queue: entry for queue, entry in _journal_ends(journal, topic).items() if queue.topic == topic}
    if last_entries and not start:
        raise BrokersAway(
            f"{journal} names dead letters of topic {topic}, which no name server knows now: its broker is away, or "
            "it was deleted; run it again once it is there, or name another journal"
        )
    for queue, entry in last_entries.items():
        if queue in start:
            start[queue] = min(max(start[queue], entry.end - 1), span.end[queue])
    return replace(span, start=start), last_entries


def _journal_ends(journal: Path, topic: str) -> dict[MessageQueue, _LastEntry]:
    """Return the end of the journal, by queue. Raises: ConfigError, it is no journal, or does not name the topic."""
    ends: dict[MessageQueue, _LastEntry] = {}
    for line in _whole_lines(journal).decode(errors="replace").splitlines():
        try:
            entry = json.loads(line)
            queue_key = str(entry["broker"]), int(entry["queue"])
            last_entry = _LastEntry(int(entry["offset"]) + 1, str(entry["msgId"]))
        except (ValueError, KeyError, TypeError):
            raise ConfigError(f"{journal} is no journal of dlq-replay: {line[:100]!r}; name another") from None
        if "topic" not in entry:
            raise ConfigError(
                f"{journal} has lines of an earlier version, which do not say whose dead letters they name. If all are "
                f'of {topic}, say so: sed -i \'s/^{{"broker"/{{"topic": "{topic}", "broker"/\' '
                f"{shlex.quote(str(journal))}; else name another journal"
            )
        queue = MessageQueue(str(entry["topic"]), *queue_key)
        ends[queue] = max(ends.get(queue, last_entry), last_entry)
    return ends


def _whole_lines(journal: Path) -> bytes:
    text = journal.read_bytes() if journal.exists() else b""
    return text[: text.rfind(b"\n") + 1]


@contextmanager
def _locked_journal(journal: Path) -> Iterator[IO[str]]:
    with open(journal, "a", encoding="utf-8") as file:
        lock_file(file, journal)
        yield file


def _messages(
    network: BlockingNetwork, span: Span, options: SourceOptions
) -> Iterator[tuple[StoredMessage, MessageQueue]]:
    for pulled in Pulls(network, between(span.start, span.end), options).answers():
        for encoded in record.walk(pulled.body):
            message = record.decode(encoded)
            if message.queue_offset < pulled.range.end:
                yield message, pulled.range.queue


def _parse_where(expression: str) -> Filter:
    try:
        return parse_filter(expression)
    except InvalidFilter as error:
        raise ConfigError(f"where={expression!r} cannot be understood: {error}") from None
