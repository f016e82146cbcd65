import inspect

import pytest

import sparrowmq.sync
from sparrowmq.admin.admin import Admin
from sparrowmq.admin.blocking_admin import SyncAdmin
from sparrowmq.client.client import connect
from sparrowmq.errors import ClientClosed, ConfigError, NoRoute
from sparrowmq.testing.background import BackgroundCluster


async def test_a_clients_is_the_same_over_its_own_connections(two):
    async with connect(two.namesrv) as mq:
        assert isinstance(mq.admin, Admin)
        async with mq.admin as admin:
            await admin.create_topic("orders", queues=1)
        assert await mq.admin.topics() == ["orders"], "leaving it leaves the client as it is"
        assert len(await mq.queues("orders")) == 2


def test_an_address_and_some_time_are_needed(monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(ConfigError, match="no name server is known"):
        Admin()
    with pytest.raises(ConfigError, match="timeout_s=0: give seconds above 0"):
        Admin("127.0.0.1:9876", timeout_s=0)


def test_without_async_it_is_the_same(tmp_path):
    with BackgroundCluster(tmp_path) as cluster:
        with sparrowmq.sync.admin(cluster.namesrv) as admin:
            assert admin.create_topic("orders") == ["broker-0"]
            with pytest.raises(NoRoute):
                admin.topic("missing")
        with pytest.raises(ClientClosed):
            admin.topics()
        with sparrowmq.sync.connect(cluster.namesrv) as mq:
            assert mq.admin.topics() == ["orders"]


def test_the_twin_has_all_calls():
    calls = {name for name, value in inspect.getmembers(Admin, inspect.iscoroutinefunction)}
    assert {name for name in calls if not name.startswith("_")} <= set(dir(SyncAdmin))


@pytest.mark.parametrize("is_ordered", [False, True])
@pytest.mark.parametrize("queues", [0, -1, 10**9, "4", "", None, True])
async def test_a_topic_with_no_number_of_queues_is_refused(admin, queues, is_ordered):
    with pytest.raises(ConfigError, match="queues="):
        await admin.create_topic("orders", queues=queues, ordered=is_ordered)


@pytest.mark.parametrize("name", ["ordered", "exist_ok"])
@pytest.mark.parametrize("value", ["no", 1, None])
async def test_a_switch_of_a_topic_is_true_or_false(admin, name, value):
    with pytest.raises(ConfigError, match=f"{name}="):
        await admin.create_topic("orders", **{name: value})


@pytest.mark.parametrize("name", ["queues", "read_queues", "write_queues"])
@pytest.mark.parametrize("value", [-1, 10**9, "4", "", 3.5, True])
async def test_a_topic_is_changed_to_a_number_of_queues(admin, name, value):
    with pytest.raises(ConfigError, match=f"{name}="):
        await admin.change_topic("orders", **{name: value})


@pytest.mark.parametrize("value", ["no", 1, None])
async def test_messages_are_hidden_by_true_alone(admin, value):
    with pytest.raises(ConfigError, match="hide_unread="):
        await admin.change_topic("orders", hide_unread=value)


async def test_settings_are_changed_by_their_keys(admin):
    with pytest.raises(ConfigError, match=r"changes='a=b': give settings by their keys"):
        await admin.change_broker("broker-0", "a=b")


@pytest.mark.parametrize("given", [{"member": "1"}, {"member": []}, {"force": "no"}])
async def test_a_member_that_shall_lead_is_a_number_and_force_is_true_or_false(admin, given):
    with pytest.raises(ConfigError, match=r"(member|force)="):
        await admin.elect("broker-0", **given)
