import asyncio
import logging

import pytest

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.registration import Registration
from sparrowmq.broker.topics import Topics
from sparrowmq.loop.clock import SystemClock
from sparrowmq.metrics.condition_kinds import NAME_TAKEN
from sparrowmq.namesrv.namesrv import Namesrv
from sparrowmq.namesrv.namesrv_settings import NamesrvSettings
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.requests.bodies import BrokerRoute, QueueRoute, TopicConfig, TopicRoute
from sparrowmq.protocol.requests.namesrv_headers import QueryDataVersionReply
from sparrowmq.protocol.requests.registration_bodies import RegisterBrokerBody
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.server import Server
from sparrowmq.testing import ManualClock
from tests.broker.conftest import until

ADDRESS = "127.0.0.1:10911"


class Announcer:
    """A registration that runs, with the topics that it announces."""

    def __init__(self, tmp_path, namesrvs, clock=None, **more):
        self.clock = clock or SystemClock()
        self.settings = BrokerSettings(name="broker-a", namesrv=tuple(namesrvs), store_path=tmp_path, **more)
        self.topics = Topics(tmp_path / "topics.json", self.settings, self.clock)
        self.pool = Pool(self.clock)
        self.registration = Registration(self.settings, self.topics, self.clock, self.pool, ADDRESS, "10.0.0.9:10912")
        self.topics.on_change = self.registration.topics_changed

    async def __aenter__(self):
        self.running = asyncio.ensure_future(self.registration.run())
        await self.registration.announced()
        return self

    async def __aexit__(self, *_):
        self.pool.close()
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)

    def put(self, name, queues=4):
        self.topics.put(TopicConfig(name, queues, queues))


def namesrv(tmp_path, port=0, clock=None):
    return Namesrv(NamesrvSettings(port=port, kv_path=tmp_path / "kvConfig.json"), clock or SystemClock())


@pytest.fixture
async def running(tmp_path):
    async with namesrv(tmp_path) as server:
        yield server


def queues(server, topic):
    route = server.routes.route(topic)
    return route.queue_datas[0].write_queue_nums if route else None


@pytest.mark.covers("S-ROUTE-01")
async def test_once_announced_the_name_server_knows_broker_and_topics(tmp_path, running):
    async with Announcer(tmp_path, [running.address]):
        table = running.routes.clusters()
        assert table.cluster_addr_table == {"DefaultCluster": ["broker-a"]}
        assert table.broker_addr_table["broker-a"].broker_addrs == {0: ADDRESS}
        assert queues(running, "TBW102") == 8 and queues(running, "DefaultCluster") == 16


async def test_a_new_topic_has_a_route_when_announced_returns(tmp_path, running):
    async with Announcer(tmp_path, [running.address]) as broker:
        for number in range(20):
            broker.put(f"Topic{number}")
            await broker.registration.announced()
            assert queues(running, f"Topic{number}") == 4
        broker.put("Topic0", queues=7)
        await broker.registration.announced()
        assert queues(running, "Topic0") == 7 and queues(running, "Topic1") == 4


@pytest.mark.covers("S-ROUTE-12")
async def test_every_name_server_is_told(tmp_path, running):
    async with (
        namesrv(tmp_path / "other") as other,
        Announcer(tmp_path, [running.address, other.address]) as broker,
    ):
        broker.put("Orders")
        await broker.registration.announced()
        assert queues(running, "Orders") == queues(other, "Orders") == 4


async def test_one_name_server_that_is_down_holds_up_nobody_and_is_told_about_once(tmp_path, running, caplog):
    async with namesrv(tmp_path / "other") as other:
        down = other.address
    with caplog.at_level(logging.INFO, "sparrowmq.broker.registration"):
        async with Announcer(tmp_path, [down, running.address]) as broker:
            for number in range(5):
                broker.put(f"Topic{number}")
                await broker.registration.announced()
            assert queues(running, "Topic4") == 4
    said = [record.getMessage() for record in caplog.records]
    assert len([line for line in said if f"not registered at name server {down}" in line]) == 1
    assert len([line for line in said if line == f"registered at name server {running.address}"]) == 1


async def test_it_comes_back_by_itself_when_the_name_server_restarts(tmp_path):
    async with namesrv(tmp_path) as first:
        port = int(first.address.rpartition(":")[2])
        broker = Announcer(tmp_path, [first.address])
        await broker.__aenter__()
        broker.put("Orders")
        await broker.registration.announced()
    async with namesrv(tmp_path, port) as second:
        await until(lambda: queues(second, "Orders") == 4 and queues(second, "TBW102") == 8)
        await broker.__aexit__()


async def test_a_name_server_that_starts_later_is_found(tmp_path):
    async with namesrv(tmp_path) as gone:
        port = int(gone.address.rpartition(":")[2])
    async with Announcer(tmp_path, [f"127.0.0.1:{port}"]), namesrv(tmp_path, port) as late:
        await until(lambda: queues(late, "TBW102") == 8)


async def test_without_a_name_server_there_is_nothing_to_wait_for(tmp_path):
    async with Announcer(tmp_path, []) as broker:
        broker.put("Orders")
        await broker.registration.announced()
        await broker.registration.leave()
        await broker.running


async def test_leaving_takes_the_broker_out_of_all_routes_for_good(tmp_path, running):
    async with Announcer(tmp_path, [running.address]) as broker:
        await broker.registration.leave()
        assert running.routes.route("TBW102") is None
        broker.put("Orders")
        await broker.running
        assert running.routes.route("Orders") is None


@pytest.mark.parametrize(("permission", "shown"), [(4, {"Orders": 4, "TBW102": 5}), (2, {"Orders": 2, "TBW102": 3})])
async def test_clients_are_told_no_more_than_the_broker_permits(tmp_path, running, permission, shown):
    async with Announcer(tmp_path, [running.address], permission=permission) as broker:
        broker.put("Orders")
        await broker.registration.announced()
        assert {topic: running.routes.route(topic).queue_datas[0].perm for topic in shown} == shown


async def test_clients_are_sent_elsewhere_once_nothing_can_be_stored_here(tmp_path, running):
    async with Announcer(tmp_path, [running.address]) as broker:
        broker.put("Orders")
        await broker.registration.announced()
        assert running.routes.route("Orders").queue_datas[0].perm == 6
        broker.registration.refuse_writes()
        broker.registration.apply_settings(broker.settings)  # as after any change of a setting
        await broker.registration.announced()
        assert running.routes.route("Orders").queue_datas[0].perm == 4


class Script:
    """A server that answers as it is told, and remembers what it was asked."""

    def __init__(self):
        self.address = ""
        self.asked = []
        self.leads_to = ADDRESS
        self.version = b""
        self.refuse = set()

    def __call__(self, session, command):
        self.asked.append((command.code, command.ext_fields(), command.body))
        if command.code in self.refuse:
            session.reply(command, 1, None, "no")
        elif command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC and not self.version:
            session.reply(command, ResponseCode.TOPIC_NOT_EXIST, None, "No topic route info")
        elif command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            broker = BrokerRoute(cluster="DefaultCluster", broker_name="broker-a", broker_addrs={0: self.leads_to})
            session.reply(command, 0, None, None, TopicRoute(broker_datas=[broker]).encode())
        elif command.code == RequestCode.QUERY_DATA_VERSION:
            session.reply(command, 0, QueryDataVersionReply(command.body != self.version), None, self.version)
        else:
            if command.code == RequestCode.REGISTER_BROKER:
                self.version = RegisterBrokerBody.decode(command.body).topics.data_version.encode()
            session.reply(command)

    def bodies(self):
        sent = [body for code, _, body in self.asked if code == RequestCode.REGISTER_BROKER]
        return [set(RegisterBrokerBody.decode(body).topics.topic_config_table) for body in sent]


@pytest.fixture
async def script():
    script = Script()
    async with Server(script, SystemClock(), "127.0.0.1", 0) as server:
        script.address = f"127.0.0.1:{server.port}"
        yield script


async def test_the_header_has_the_fields_of_java(tmp_path, script):
    async with Announcer(tmp_path, [script.address]):
        fields, body = next(asked[1:] for asked in script.asked if asked[0] == RequestCode.REGISTER_BROKER)
        assert fields.pop("bodyCrc32").isdigit() and body.startswith(b'{"filterServerList":[],"topicConfigS')
        assert fields == {
            "brokerName": "broker-a",
            "brokerAddr": ADDRESS,
            "clusterName": "DefaultCluster",
            "haServerAddr": "10.0.0.9:10912",
            "brokerId": "0",
            "compressed": "false",
        }


async def test_a_change_sends_only_what_changed(tmp_path, script):
    async with Announcer(tmp_path, [script.address]) as broker:
        broker.put("Orders")
        await broker.registration.announced()
        assert script.bodies()[0] > {"TBW102", "DefaultCluster"} and script.bodies()[1:] == [{"Orders"}]


async def test_a_name_server_with_another_version_is_told_everything(tmp_path, script):
    async with Announcer(tmp_path, [script.address]) as broker:
        script.version = b'{"counter":1,"timestamp":5}'
        broker.put("Orders")
        await broker.registration.announced()
        assert script.bodies()[1] == {*script.bodies()[0], "Orders"}


async def test_a_refused_registration_is_tried_again(tmp_path, script, caplog):
    script.refuse = {RequestCode.REGISTER_BROKER}
    async with Announcer(tmp_path, [script.address]):
        assert "trying again and again: the peer answered with code 1: no" in caplog.text
        script.refuse = set()
        await until(lambda: script.version != b"")


async def test_many_changes_at_once_cost_few_registrations(tmp_path, script):
    async with Announcer(tmp_path, [script.address]) as broker:
        for number in range(1000):
            broker.put(f"Topic{number}")
        await broker.registration.announced()
        assert len(script.bodies()) <= 3 and len(set.union(*script.bodies())) > 1000


async def test_the_topics_of_a_large_broker_are_written_in_slices(tmp_path, script):
    turn, asked = 0, []

    async def count() -> None:
        nonlocal turn
        while True:
            await asyncio.sleep(0)
            turn += 1

    def note() -> bool:
        asked.append(turn)
        return True

    async with Announcer(tmp_path, [script.address]) as broker:
        for number in range(20_000):
            broker.put(f"Topic{number}")
        # The link asks before it writes the topics, and before it sends them.
        broker.registration.may_register = note
        beside = asyncio.create_task(count())
        await broker.registration.announced()
        beside.cancel()
        assert len(script.bodies()[-1]) == 20_000
        assert asked[1] - asked[0] > 10  # it takes 40 ms or more


async def test_a_master_that_loses_the_lead_while_it_writes_its_topics_does_not_announce_them(tmp_path, running):
    async with Announcer(tmp_path, [running.address]) as former:
        answers = iter([True])
        former.registration.may_register = lambda: next(answers, False)
        former.put("later")
        await former.registration.announced()
        assert queues(running, "later") is None
        assert next(answers, None) is None, "it was asked"


async def test_a_very_large_body_is_packed(tmp_path, running, monkeypatch):
    monkeypatch.setattr("sparrowmq.broker.registration.LARGE_BODY_BYTES", 1000)
    async with Announcer(tmp_path, [running.address]):
        assert running.routes.route("TBW102").queue_datas == [QueueRoute("broker-a", 8, 8, 7)]


async def test_a_name_server_that_never_answers_does_not_hold_up_a_client_for_long(tmp_path):
    clock = ManualClock()
    async with Server(lambda session, command: None, clock, "127.0.0.1", 0) as silent:
        broker = Announcer(tmp_path, [f"127.0.0.1:{silent.port}"], clock)
        broker.running = asyncio.ensure_future(broker.registration.run())
        announced = asyncio.ensure_future(broker.registration.announced())
        await until(lambda: bool(silent.sessions))
        await clock.advance(seconds=2.9)
        assert not announced.done()
        await clock.advance(seconds=0.2)
        await until(announced.done)
        await broker.__aexit__()


async def test_a_goodbye_that_is_refused_is_no_failure(tmp_path, script, caplog):
    script.refuse = {RequestCode.UNREGISTER_BROKER}
    async with Announcer(tmp_path, [script.address]) as broker:
        await broker.registration.leave()
    assert "did not unregister this broker" in caplog.text


@pytest.mark.covers("S-ROUTE-06")
async def test_a_quiet_broker_says_every_thirty_seconds_that_it_is_there(tmp_path, script):
    clock = ManualClock()
    async with Announcer(tmp_path, [script.address], clock):
        for _ in range(5):
            script.asked.clear()
            await clock.advance(seconds=29.9)
            assert script.asked == []
            await clock.advance(seconds=0.1)
            await until(lambda: RequestCode.QUERY_DATA_VERSION in [code for code, _, _ in script.asked])
        assert script.bodies() == []


async def test_a_broker_whose_name_server_leads_to_another_tells_everything_again(tmp_path, script):
    # As Apache's name server is when another broker came with our name and id: it knows our version, and hides us.
    clock = ManualClock()
    async with Announcer(tmp_path, [script.address], clock):
        script.leads_to = "10.9.9.9:10911"
        await clock.advance(seconds=30)
        await until(lambda: len(script.bodies()) == 2)
        assert script.bodies()[0] == script.bodies()[1]


def taken(announcer):
    return dict(announcer.registration.part().probes)[NAME_TAKEN]()


async def test_two_brokers_of_one_name_and_id_both_say_so_until_one_has_left(tmp_path):
    clock = ManualClock()
    async with (
        namesrv(tmp_path / "names", clock=clock) as server,
        Announcer(tmp_path, [server.address], clock) as first,
    ):
        other = Announcer(tmp_path / "other", [server.address], clock)
        address = "127.0.0.1:10999"
        other.registration = Registration(other.settings, other.topics, clock, other.pool, address, "")
        async with other:
            assert taken(first) == taken(other) == "", "it may have been started at another address"
            await clock.advance(seconds=30)
            await until(lambda: taken(first).startswith(f"{address} registers with the same brokerName"))
            await clock.advance(seconds=30)
            await until(lambda: taken(other).startswith(f"{ADDRESS} registers"))
            await other.registration.leave()
        await clock.advance(seconds=30)
        await until(lambda: taken(first) == "")


async def test_a_broker_that_has_moved_to_another_address_is_no_rival_of_itself(tmp_path, script):
    script.leads_to = "10.9.9.9:10911"
    async with Announcer(tmp_path, [script.address]) as it:
        await until(lambda: len(script.bodies()) == 1)
        assert taken(it) == ""


@pytest.mark.covers("S-ROUTE-06")
async def test_a_broker_is_found_again_30_s_after_another_of_its_name_has_come_and_gone(tmp_path):
    clock = ManualClock()
    async with (
        namesrv(tmp_path / "names", clock=clock) as server,
        Announcer(tmp_path, [server.address], clock),
    ):
        other = Announcer(tmp_path / "other", [server.address], clock)
        other.registration = Registration(other.settings, other.topics, clock, other.pool, "127.0.0.1:10999", "")
        async with other:
            assert server.routes.route("TBW102").broker_datas[0].broker_addrs == {0: "127.0.0.1:10999"}
            await other.registration.leave()
        assert server.routes.route("TBW102") is None
        await clock.advance(seconds=30)
        await until(lambda: queues(server, "TBW102") == 8)
        assert server.routes.route("TBW102").broker_datas[0].broker_addrs == {0: ADDRESS}


async def test_a_master_that_is_none_any_more_neither_announces_itself_nor_takes_its_successor_away(tmp_path, running):
    async with Announcer(tmp_path, [running.address]) as former:
        former.registration.may_register = lambda: False
        former.put("later")
        former.registration.topics_changed()
        await former.registration.announced()
        assert queues(running, "later") is None
        await former.registration.leave()
        assert running.routes.clusters().broker_addr_table["broker-a"].broker_addrs == {0: ADDRESS}
