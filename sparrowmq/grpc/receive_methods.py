"""ReceiveMessage and QueryAssignment.

A receive is one pop at a broker, which waits until there is a message. The answer is a stream: a status, the messages,
and the time of their delivery. Receives of one client begin in different turns of the loop, and its acknowledgements go
between. Otherwise a client with many receives in flight would get more and more messages.

If a client goes away while a broker holds its pop, the messages of the pop are given back. Otherwise each consumer that
stops would delay the messages that come within its last long poll:

    a broker in this process    forgets the pop with the call
    a broker behind mqproxy     holds the pop, and may answer it with messages; each of them becomes visible again after
                                GIVE_BACK_MS, not after the invisible time of the call

Source: ReceiveMessageActivity, ConsumerProcessor and ReceiveMessageResponseStreamWriter, Java 5.4.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, NamedTuple

from sparrowmq.errors import ConfigError, SparrowError
from sparrowmq.grpc import client_settings
from sparrowmq.grpc.ack_methods import AckMethods, invisible_ms_of
from sparrowmq.grpc.brokers import Brokers, message_queue
from sparrowmq.grpc.caller import Caller, consumer_group_of, topic_of
from sparrowmq.grpc.client_settings import LONG_POLL_S, RECEIVE_BATCH, ms_of
from sparrowmq.grpc.clients import Client, Clients, Send
from sparrowmq.grpc.message_out import PopAnswer, PoppedMessage, message_of, needs_unpacking
from sparrowmq.grpc.renewals import INVISIBLE_MS, Renewals
from sparrowmq.grpc.statuses import Status, refusal, status
from sparrowmq.grpc.telemetry import check_size
from sparrowmq.grpc.wire_types import MESSAGE_FIELD, TIME_FIELD, ClientType, FilterType, Permission, message_class
from sparrowmq.kernel.grpc_messages import field, time_of
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message import Perm
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.protocol.requests.bodies import GroupConfig
from sparrowmq.protocol.requests.pop_headers import ANY_QUEUE, FROM_NEWEST, PopMessage
from sparrowmq.protocol.subscription import SQL92, TAG, Subscription
from sparrowmq.remoting.log_limit import LogLimit
from sparrowmq.remoting.request_in_flight import Response

log = logging.getLogger(__name__)

_STATUS_CHUNK: Final = field(1, bytes(status().SerializeToString()))
_MAX_BYTES_PER_WRITE: Final = 64 * 1024  # of messages that are sent in one go, as few frames
_RETURN_MARGIN_S: Final = 0.5  # of the caller's time, for the way back
GIVE_BACK_MS: Final = 1000
MAX_ABANDONED_POPS: Final = 4000  # pops; the messages of further ones come back after their invisible time
_GIVE_UP_MARGIN_S: Final = 10
_NO_MESSAGE_CODES: Final = (
    ResponseCode.NO_MESSAGE,
    ResponseCode.POLLING_TIMEOUT,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
)


class Receive(NamedTuple):
    """A receive: the pop that it is, and where."""

    pop: PopMessage
    broker_name: str
    filter: Subscription


class ReceiveMethods:
    """The calls of consumers that want messages."""

    def __init__(self, clients: Clients, renewals: Renewals, acks: AckMethods, clock: Clock) -> None:
        self._clients = clients
        self._renewals = renewals
        self._acks = acks
        self._abandoned_pops = AbandonedPops(acks)
        self._clock = clock
        self._log_limit = LogLimit(clock)  # such a message comes again and again

    async def assignment(self, caller: Caller, request: Any, endpoints: Any) -> Any:
        """QueryAssignment: all queues of a broker as one, or each queue of an ordered group."""
        topic, group = topic_of(request.topic), consumer_group_of(request.group)
        await caller.brokers.check_consumer_access(group, [topic])
        route = await caller.brokers.route(topic)
        config = await caller.brokers.group(group) or GroupConfig()
        answer = message_class("QueryAssignmentResponse")(status=status())
        for row in sorted(route.queue_datas, key=lambda row: row.broker_name):
            if not row.perm & Perm.READ or not row.read_queue_nums:
                continue
            ids = range(row.read_queue_nums) if config.consume_message_orderly else [ANY_QUEUE]
            for queue_id in ids:
                place = (row.broker_name, queue_id, Permission.READ)
                queue = message_queue(request.topic, place, (), endpoints)
                answer.assignments.add().message_queue.CopyFrom(queue)
        if not answer.assignments:
            raise refusal(Status.FORBIDDEN, f"topic {topic} has no queue that can be consumed")
        return answer

    async def receive(self, caller: Caller, request: Any, send: Send) -> None:
        """ReceiveMessage. Raises: SparrowError, before it has sent anything."""
        if not self._clients.has_settings(caller.client_id):
            topic, group = topic_of(request.message_queue.topic), consumer_group_of(request.group)
            await caller.brokers.check_consumer_access(group, [topic])
        client = await self._clients.wait_for_settings(caller.client_id, caller.address)
        if not client.settings_arrived.is_set():
            await self._configure(client, caller, request)
        if request.auto_renew:
            self._renewals.check_room(client)
        async with client.receive_lock:  # the client's earlier receives have begun, each in a turn of the loop
            await asyncio.sleep(0)
        receive = self._receive_of(caller, client, request)
        config = await caller.brokers.group(receive.pop.consumer_group) or GroupConfig()
        response = await self._abandoned_pops.pop(caller.brokers, receive)
        if response.code:
            raise refusal(Status.MESSAGE_NOT_FOUND, "no new message")
        answer = PopAnswer(response.header, response.body, receive.broker_name)
        renewing_client = client if request.auto_renew else None
        await self._deliver(renewing_client, caller.brokers, receive, answer, config.retry_max_times + 1, send)

    async def _configure(self, client: Client, caller: Caller, request: Any) -> None:
        """Give a client without settings those that its call shows. Raises: SparrowError, the call is refused. Unlike
        Java: Python's client sends its settings again only every five minutes. After a restart of the port, or an
        election, it would get no messages for so long."""
        group = await caller.brokers.group(consumer_group_of(request.group))
        kind = ClientType.PUSH_CONSUMER if request.auto_renew else ClientType.SIMPLE_CONSUMER
        settings = message_class("Settings")(client_type=kind)
        settings.subscription.group.CopyFrom(request.group)
        settings.subscription.subscriptions.add(topic=request.message_queue.topic, expression=request.filter_expression)
        check_size(settings)
        client.language, client.address = caller.language, caller.address
        self._clients.configure(client, client_settings.complete_settings(settings, group), caller.brokers)

    async def _deliver(
        self,
        client: Client | None,
        brokers: Brokers,
        receive: Receive,
        answer: PopAnswer,
        max_attempts: int,
        send: Send,
    ) -> None:
        """Send the messages, and renew them for `client` if it is given. Raises: RemoteError, there is none.

        The kernel makes runs of plain messages. A message that cannot be settled or unpacked stays in the group, and
        delays no other. But an ordered group gets no message behind it of the same message group: all of them come
        again.
        """
        topic, group = receive.pop.topic, receive.pop.consumer_group
        records = answer.plain_records(topic, max_attempts, receive.filter.tags)
        stuck_message_groups: set[str] = set()
        chunks, chunk_bytes, count = [_STATUS_CHUNK], 0, 0
        while not records.is_at_end:
            messages = [] if stuck_message_groups else records.take_plain()
            handles, visible_ms = records.handles, answer.visible_ms
            if not messages and not records.is_at_end:
                popped = answer.message_of(records.take_record())
                message_group = popped.message.properties.get(Property.SHARDING_KEY, "")
                if message_group in stuck_message_groups:
                    continue
                try:
                    raw = await self._message(brokers, receive, popped, max_attempts)
                except SparrowError as error:
                    self._log_limit.log(log, logging.WARNING, "%s stays in group %s: %s", popped.message, group, error)
                    if receive.pop.order:
                        stuck_message_groups.add(message_group)
                    continue
                if raw is None:
                    continue
                messages = [field(MESSAGE_FIELD, raw)]
                handles, visible_ms = [str(popped.handle)], popped.handle.visible_ms
            if client is not None:
                for handle_text in handles:
                    self._renewals.add(client, topic, group, handle_text, visible_ms)
            chunks += messages
            count += len(messages)
            chunk_bytes += sum(map(len, messages))
            if chunk_bytes > _MAX_BYTES_PER_WRITE:
                await send(*chunks)
                chunks, chunk_bytes = [], 0
        if not count:
            raise refusal(Status.MESSAGE_NOT_FOUND, "no new message")
        await send(*chunks, field(TIME_FIELD, time_of(self._clock.now_ms())))

    async def _message(
        self, brokers: Brokers, receive: Receive, popped: PoppedMessage, max_attempts: int
    ) -> bytes | None:
        """A message that is not plain; None if the client gets it no more. Raises: SparrowError. A thread unpacks
        bodies: 145 bytes of Zstandard may become 4 MiB, which take 25 ms."""
        message = popped.message
        place = receive.pop.topic, receive.pop.consumer_group, str(popped.handle)
        if popped.attempt > max_attempts:
            await self._acks.move_to_dlq(brokers, *place, message.message_id)
            return None
        if not receive.filter.wants(message.tags):
            await self._acks.acknowledge(brokers, *place)
            return None
        arguments = message, receive.pop.topic, popped.attempt, popped.handle
        return await asyncio.to_thread(message_of, *arguments) if needs_unpacking(message) else message_of(*arguments)

    def _receive_of(self, caller: Caller, client: Client, request: Any) -> Receive:
        topic, group = topic_of(request.message_queue.topic), consumer_group_of(request.group)
        wanted = _filter_of(topic, request.filter_expression)
        if request.batch_size < 1:
            raise refusal(Status.BAD_REQUEST, f"batch_size={request.batch_size}; give 1 to {RECEIVE_BATCH}")
        pop = PopMessage(
            consumer_group=group,
            topic=topic,
            # Simple consumers take the queues in turn, but a message in any of them should do. Node's takes the first.
            queue_id=request.message_queue.id if client.is_fifo and request.auto_renew else ANY_QUEUE,
            max_msg_nums=min(int(request.batch_size), RECEIVE_BATCH),
            invisible_time=INVISIBLE_MS if request.auto_renew else invisible_ms_of(request),
            poll_time=self._poll_ms(caller, client, request),
            born_time=self._clock.now_ms(),
            init_mode=FROM_NEWEST,
            exp_type=wanted.kind,
            exp=wanted.expression,
            order=client.is_fifo,
            attempt_id=request.attempt_id or None,
        )
        return Receive(pop, request.message_queue.broker.name, wanted)

    def _poll_ms(self, caller: Caller, client: Client, request: Any) -> int:
        timeout = request.long_polling_timeout if request.HasField("long_polling_timeout") else None
        wait_s = LONG_POLL_S if timeout is None else ms_of(timeout) / 1000
        remaining_s = caller.call.time_left_s
        if remaining_s is not None:
            wait_s = min(wait_s, remaining_s - _RETURN_MARGIN_S)
        return int(max(0.0, min(wait_s, LONG_POLL_S)) * 1000)


class AbandonedPops:
    """The pops of a port, and those of them that no client waits for any more."""

    def __init__(self, acks: AckMethods) -> None:
        self._acks = acks
        self._tasks: set[asyncio.Task[Any]] = set()

    async def pop(self, brokers: Brokers, receive: Receive) -> Response[Any]:
        """The answer to a pop. If its waiter is cancelled, messages that it still brings are given back."""
        timeout_s = receive.pop.poll_time / 1000 + _GIVE_UP_MARGIN_S
        answer = brokers.ask(receive.broker_name, receive.pop, timeout_s=timeout_s, accepted_codes=_NO_MESSAGE_CODES)
        if brokers.local_broker is not None:
            return await answer
        task = asyncio.ensure_future(answer)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if len(self._tasks) < MAX_ABANDONED_POPS:
                give_back_task = asyncio.create_task(self._give_back(brokers, receive, task))
                self._tasks.add(give_back_task)
                give_back_task.add_done_callback(self._tasks.discard)
            else:
                task.cancel()
            raise

    async def _give_back(self, brokers: Brokers, receive: Receive, pop_answer: asyncio.Future[Response[Any]]) -> None:
        pop = receive.pop
        try:
            answer = await pop_answer
            if answer.code:
                return
            popped = PopAnswer(answer.header, answer.body, receive.broker_name)
            for raw in record.walk(answer.body):
                handle_text = str(popped.message_of(raw).handle)
                await self._acks.renew(brokers, pop.topic, pop.consumer_group, handle_text, GIVE_BACK_MS)
        except SparrowError as error:
            text = "messages of %s that no client of %s waits for come back after their invisible time: %s"
            log.info(text, pop.topic, pop.consumer_group, error)


def _filter_of(topic: str, expression: Any) -> Subscription:
    kind = SQL92 if expression.type == FilterType.SQL else TAG
    if kind == SQL92 and not expression.expression.strip():
        raise refusal(Status.ILLEGAL_FILTER_EXPRESSION, "the SQL expression is blank; leave the filter out for all")
    try:
        return Subscription.build(topic, expression.expression, kind)
    except (ConfigError, ValueError) as error:
        raise refusal(Status.ILLEGAL_FILTER_EXPRESSION, str(error)) from None
