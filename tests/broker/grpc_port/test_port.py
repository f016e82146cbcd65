"""The gRPC port of a broker, over sockets."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from sparrowmq import connect
from sparrowmq.client.cluster.network import Network
from sparrowmq.errors import RemoteError
from sparrowmq.grpc.client_settings import set_ms
from sparrowmq.grpc.send_methods import TransactionId
from sparrowmq.grpc.wire_types import ClientType, MessageType, Resolution
from sparrowmq.protocol.requests.admin_headers import UpdateAndCreateSubscriptionGroup
from sparrowmq.protocol.requests.bodies import GroupConfig
from sparrowmq.protocol.requests.client_bodies import ConsumeOutcome, ConsumerRunning
from sparrowmq.protocol.requests.headers import ConsumeMessageDirectly, GetConsumerRunning
from sparrowmq.protocol.requests.pop_headers import Polling
from sparrowmq.testing import Cluster
from sparrowmq.testing.clock import ManualClock
from tests.broker.grpc_port.grpc_client import GrpcClient, channel_to
from tests.broker.live import live_broker
from tests.grpc.scripted import named, outgoing


async def make_topic(cluster, queues=2):
    async with connect(cluster.namesrv) as mq:
        await mq.admin.create_topic("orders", queues=queues)


async def test_message_is_sent_received_and_acknowledged(tmp_path):
    async with Cluster(tmp_path, grpc_port=0) as cluster:
        await make_topic(cluster)
        async with channel_to(cluster.brokers[0].grpc_address) as channel:
            producer, consumer = GrpcClient(channel, "p"), GrpcClient(channel, "c")
            await (await consumer.telemetry(ClientType.SIMPLE_CONSUMER, group="g"))()
            assert (await consumer.receive(wait_ms=0))[0] == 40401
            sent = await producer.call("SendMessage", messages=[outgoing(tag="t", keys=["k"])])
            assert sent.status.code == 20000
            code, (got,) = await consumer.receive()
            system = got.system_properties
            assert (code, got.body, system.tag, list(system.keys)) == (20000, b"hello", "t", ["k"])
            names = {"topic": named("orders"), "group": named("g")}
            change = {"receipt_handle": system.receipt_handle, "message_id": system.message_id}
            duration = system.invisible_duration
            set_ms(duration, 60_000)
            changed = await consumer.call("ChangeInvisibleDuration", **names, **change, invisible_duration=duration)
            entry = {"message_id": system.message_id, "receipt_handle": changed.receipt_handle}
            acked = await consumer.call("AckMessage", **names, entries=[entry])
            assert (changed.status.code, acked.status.code) == (20000, 20000)


async def test_port_with_an_open_stream_ends_while_nothing_moves_the_clock(tmp_path):
    cluster = Cluster(tmp_path, clock=ManualClock(), grpc_port=0)
    async with asyncio.timeout(20), AsyncExitStack() as channels, cluster:
        channel = await channels.enter_async_context(channel_to(cluster.brokers[0].grpc_address))
        await (await GrpcClient(channel, "p").telemetry(ClientType.PRODUCER))()


async def test_receive_that_its_client_gives_up_takes_no_message(tmp_path):
    async with live_broker(tmp_path, grpc_port=0) as live:
        await make_topic(live.cluster)

        async def held():
            return (await live.session.call(Polling("g", "orders", 0))).header.polling_num

        async with channel_to(live.broker.grpc_address) as channel:
            producer, consumer = GrpcClient(channel, "p"), GrpcClient(channel, "c")
            await (await consumer.telemetry(ClientType.SIMPLE_CONSUMER, group="g"))()
            await consumer.receive(wait_ms=0)
            given_up = [asyncio.ensure_future(consumer.receive(wait_ms=20_000)) for _ in range(3)]
            async with asyncio.timeout(15):
                while await held() < 3:
                    await asyncio.sleep(0.01)
                for each in given_up:
                    each.cancel()
                while await held():
                    await asyncio.sleep(0.01)
            await producer.call("SendMessage", messages=[outgoing()])
            code, got = await consumer.receive()
            assert (code, len(got)) == (20000, 1)


async def test_slow_message_group_delays_no_other(tmp_path):
    async with live_broker(tmp_path, grpc_port=0) as live:
        async with connect(live.cluster.namesrv) as mq:
            await mq.admin.create_topic("orders", queues=1, message_type="FIFO")
        config = GroupConfig("g", consume_message_orderly=True)
        await live.session.call(UpdateAndCreateSubscriptionGroup(), config.encode())
        async with channel_to(live.broker.grpc_address) as channel:
            producer, slow, quick = (GrpcClient(channel, name) for name in ("p", "slow", "quick"))
            for consumer in (slow, quick):
                await (await consumer.telemetry(ClientType.SIMPLE_CONSUMER, group="g"))()
            assert (await slow.receive(queue_id=0, wait_ms=0))[0] == 40401
            for number, group in enumerate("aabbab"):
                sent = outgoing(body=b"%d" % number, message_type=MessageType.FIFO, message_group=group)
                assert (await producer.call("SendMessage", messages=[sent])).status.code == 20000
            _, (stuck,) = await slow.receive(queue_id=0, count=1, attempt_id="1")
            assert stuck.body == b"0"
            _, others = await quick.receive(queue_id=0, attempt_id="2")
            assert [each.body for each in others] == [b"2", b"3", b"5"]
            _, again = await slow.receive(queue_id=0, count=1, attempt_id="1")
            assert [(each.body, each.system_properties.delivery_attempt) for each in again] == [(b"0", 1)]
            waiting = asyncio.ensure_future(quick.receive(queue_id=0, wait_ms=15_000, attempt_id="3"))
            entry = {"receipt_handle": again[0].system_properties.receipt_handle}
            names = {"topic": named("orders"), "group": named("g")}
            assert (await slow.call("AckMessage", **names, entries=[entry])).status.code == 20000
            assert [each.body for each in (await waiting)[1]] == [b"1", b"4"]


async def test_broker_sees_the_members_of_a_group(tmp_path):
    async with Cluster(tmp_path, grpc_port=0) as cluster:
        await make_topic(cluster)
        async with channel_to(cluster.brokers[0].grpc_address) as channel, connect(cluster.namesrv) as mq:
            consumer = GrpcClient(channel, "consumer-7")
            await (await consumer.telemetry(ClientType.SIMPLE_CONSUMER, group="g"))()
            await consumer.receive(wait_ms=0)
            members = await mq.admin.members("g")
            assert [member.client_id for member in members] == ["consumer-7"]
            await consumer.call("NotifyClientTermination", group=named("g"))
            await consumer.call("QueryRoute", topic=named("orders"))
            assert await mq.admin.members("g") == []


async def test_producer_is_asked_for_the_end_of_a_transaction(tmp_path):
    soon = Cluster(tmp_path, grpc_port=0, transaction_timeout_ms=100, transaction_interval_ms=100)
    async with soon as cluster:
        await make_topic(cluster)
        async with channel_to(cluster.brokers[0].grpc_address) as channel:
            producer, consumer = GrpcClient(channel, "p"), GrpcClient(channel, "c")
            await (await consumer.telemetry(ClientType.SIMPLE_CONSUMER, group="g"))()
            assert (await consumer.receive(wait_ms=0))[0] == 40401
            read = await producer.telemetry(topic="orders")
            await read()
            half = outgoing(message_type=MessageType.TRANSACTION)
            sent = (await producer.call("SendMessage", messages=[half])).entries[0]
            asked = (await read()).recover_orphaned_transaction_command
            assert asked.message.body == b"hello"
            known = TransactionId.parse(sent.transaction_id)
            assert TransactionId.parse(asked.transaction_id).unique_id == known.unique_id
            end = {"topic": named("orders"), "transaction_id": asked.transaction_id}
            ended = await producer.call("EndTransaction", **end, resolution=Resolution.COMMIT)
            assert ended.status.code == 20000
            assert [each.body for each in (await consumer.receive())[1]] == [b"hello"]


async def test_mistakes_of_clients_have_their_codes(tmp_path):
    async with Cluster(tmp_path, grpc_port=0) as cluster:
        await make_topic(cluster)
        async with channel_to(cluster.brokers[0].grpc_address) as channel:
            client = GrpcClient(channel)
            names = {"topic": named("orders"), "group": named("g")}
            forged = "0 1795460971545 99999999999 0 0 broker-0 0 0 0"
            entry = {"message_id": "x", "receipt_handle": forged}
            assert (await client.call("QueryRoute", topic=named("nope"))).status.code == 40402
            assert (await client.call("QueryRoute", topic=named("TBW102"))).status.code == 40002
            assert (await client.call("AckMessage", **names, entries=[entry])).status.code == 40013
            lost = str(TransactionId("broker-0", 0, 10_000_000, "x"))
            ended = await client.call("EndTransaction", topic=named("orders"), transaction_id=lost, resolution=1)
            assert ended.status.code == 40008
            future, wide = outgoing(), outgoing(trace_context="x" * 40_000)
            future.system_properties.born_timestamp.seconds = 2**63 - 1
            for bad in (future, wide):
                answer = await client.call("SendMessage", messages=[bad])
                assert answer.status.code == 40000, answer


async def test_operator_gets_stacks_and_has_a_message_handled(tmp_path):
    async with Cluster(tmp_path, grpc_port=0) as cluster, Network(cluster.namesrv) as network:
        await make_topic(cluster)
        session = await network.brokers.session(cluster.brokers[0].address)
        async with channel_to(cluster.brokers[0].grpc_address) as channel:
            consumer, other = GrpcClient(channel, "c"), GrpcClient(channel, "x")
            read = await consumer.telemetry(ClientType.PUSH_CONSUMER, group="g")
            for each in (read, await other.telemetry(ClientType.PUSH_CONSUMER, group="g")):
                await each()
            running = ConsumerRunning.decode((await session.call(GetConsumerRunning("g", "c"))).body)
            assert [each.topic for each in running.subscription_set] == ["orders"]
            assert running.jstack is None

            wish = session.call(GetConsumerRunning("g", "c", True))
            nonce = (await read()).print_thread_stack_trace_command.nonce
            await other.answer("thread_stack_trace", nonce, "forged")
            await other.call("QueryRoute", topic=named("orders"))
            await consumer.answer("thread_stack_trace", nonce, "at main")
            assert ConsumerRunning.decode((await wish).body).jstack == "at main"

            async with connect(cluster.namesrv) as mq:
                sent = await mq.producer("p").send("orders", b"hello")
            ask = ConsumeMessageDirectly("g", "c", sent.offset_msg_id)
            for code, result in ((20000, "CR_SUCCESS"), (50000, "CR_LATER")):
                wish = session.call(ask)
                command = (await read()).verify_message_command
                assert (command.message.body, command.message.topic.name) == (b"hello", "orders")
                await consumer.answer("verify_message_result", command.nonce, "no", code)
                outcome = ConsumeOutcome.decode((await wish).body)
                assert (outcome.consume_result, outcome.remark) == (
                    result,
                    None if code == 20000 else "50000 no",
                )
            wish = session.call(ask)
            command = (await read()).verify_message_command
            await consumer.answer("verify_message_result", command.nonce, "never", 50100)
            with pytest.raises(RemoteError, match="never"):
                await wish


async def test_broker_without_the_setting_has_no_port(tmp_path):
    async with Cluster(tmp_path) as cluster:
        assert cluster.brokers[0].grpc_address == ""
