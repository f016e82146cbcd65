"""The role of each action, the log of actions, and what each action changes."""

import ast
import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import sparrowmq.console
from sparrowmq.admin import catalogue
from sparrowmq.admin.catalogue import broker_settings
from sparrowmq.admin.groups import Group, GroupLag, QueueLag
from sparrowmq.admin.topics import Topic, TopicShare
from sparrowmq.client.cluster.credentials import Credentials
from sparrowmq.console import actions
from sparrowmq.console.actions import BrokerAccounts
from sparrowmq.console.cluster_view import ClusterView
from sparrowmq.console.layout.forms import DialogForm, properties_in
from sparrowmq.console.layout.view import Forbidden
from sparrowmq.console.users import Role
from sparrowmq.errors import ChangeFailed
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.bodies import AccountList, GroupConfig
from sparrowmq.protocol.requests.group_settings import text_of
from sparrowmq.testing import Cluster
from tests.console.layout.seeing import page, seen

FOLDER = Path(sparrowmq.console.__file__).parent
QUEUES = [MessageQueue("t", "b", number) for number in range(3)]
TOPIC = Topic("orders", (TopicShare("b", 2, 2, "rw"),), ())
GROUP = Group("billing", {"b": GroupConfig("billing")}, {})
LAG = GroupLag("billing", (QueueLag(QUEUES[0], 10, 4, None),), 0.0)
ACCOUNTS = BrokerAccounts("b", {"b": "a:1"}, AccountList())
NOTHING: Any = SimpleNamespace(msg_id="id")
SAMPLES = {
    each.name: each
    for each in (
        actions.send_message("orders"),
        actions.create_topic(),
        actions.change_topic(TOPIC),
        actions.delete_topic(TOPIC),
        actions.reset_offsets(),
        actions.skip_waiting(LAG),
        actions.create_group(),
        actions.change_group(GROUP),
        actions.delete_group("billing"),
        actions.resend_message(NOTHING),
        actions.retry_dead_letters("billing", NOTHING),
        actions.change_setting("b", "a:1", {}),
        actions.forget_broker("b"),
        actions.use_name_servers([]),
        actions.put_account(ACCOUNTS),
        actions.set_white_addresses(ACCOUNTS),
        actions.delete_account(ACCOUNTS),
    )
}


async def carried_out(view, action, **values):
    """Carry out an action as its dialog does."""
    with page():
        asked = DialogForm(action.fields)
        for name, value in values.items():
            asked.set(name, value)
        return await action.carry_out(view, asked)


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("name", SAMPLES)
async def test_an_action_is_refused_without_its_role(name, role):
    view, action = seen(role=role), SAMPLES[name]
    if role >= action.role:
        view.check_role(action.role, action.name)
        return
    with pytest.raises(Forbidden, match="needs the role"):
        await carried_out(view, action)


@pytest.mark.parametrize("name", SAMPLES)
async def test_nothing_can_be_done_after_the_log_out(name):
    view = seen(role=Role.ADMIN)
    view.session.is_alive = False
    with pytest.raises(Forbidden, match="log in again"):
        await carried_out(view, SAMPLES[name])


def test_messages_and_offsets_need_an_operator_and_all_else_an_administrator():
    operated = {
        "send message",
        "reset offsets",
        "skip waiting messages",
        "resend message",
        "retry dead letters",
    }
    assert {name for name, each in SAMPLES.items() if each.role is Role.OPERATE} == operated
    assert {each.role for each in SAMPLES.values()} == {Role.OPERATE, Role.ADMIN}


def test_every_action_has_a_sample():
    made = [each for each in vars(actions).values() if inspect.isfunction(each)]
    made = [each for each in made if inspect.signature(each).return_annotation == "Action"]
    assert len(made) == len(SAMPLES)


CHANGES = {
    *(
        "create_topic",
        "change_topic",
        "delete_topic",
        "create_group",
        "change_group",
        "delete_group",
        "reset",
    ),
    *("resend", "send", "send_many", "send_soon", "send_nowait", "change_settings", "change_broker_settings"),
    *("consume_directly", "put_account", "delete_account", "set_white_addresses"),
}


def test_no_other_file_of_the_console_changes_anything():
    for file in FOLDER.rglob("*.py"):
        if file.name == "actions.py":
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                assert node.func.attr not in CHANGES, f"{file.name}:{node.lineno}"
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sparrowmq.client"):
                assert not CHANGES & {each.name for each in node.names}, f"{file.name}:{node.lineno}"


async def test_who_did_what_is_logged_without_bodies_and_secrets(look, caplog):
    caplog.set_level("INFO", "sparrowmq.console.layout.forms")
    view = seen(role=Role.ADMIN, look=look)
    await carried_out(view, actions.create_topic(), name="orders", queues=1, message_type="FIFO")
    assert (await view.admin.topic("orders")).shares[0].message_type == "FIFO"
    values = {"body": "hidden body", "tag": "t", "keys": "k", "properties": "p=hidden"}
    await carried_out(view, actions.send_message("orders"), **values)
    assert "somebody: create topic name=orders queues=1 perm=rw message_type=FIFO" in caplog.text
    assert "somebody: send message orders tag=t" in caplog.text and "hidden" not in caplog.text
    with pytest.raises(Exception):  # noqa: B017 this broker has no access control
        await carried_out(view, actions.put_account(ACCOUNTS), key="someone", secret="hiddenSecret")
    assert "key=someone" in caplog.text and "hidden" not in caplog.text


async def test_a_change_is_seen_at_once(look):
    view = seen(role=Role.ADMIN, look=look)
    await look.topics()
    await carried_out(view, actions.create_topic(), name="orders", queues=1)
    assert "orders" in await look.topics()
    topic = await look.admin.topic("orders")
    await carried_out(view, actions.change_topic(topic), read_queues=2, write_queues=2, perm="r")
    assert (await look.topics())["orders"]["broker-0"].read_queue_nums == 2
    await carried_out(view, actions.delete_topic(topic))
    assert "orders" not in await look.topics()


async def test_a_group_is_created_reset_changed_and_deleted(look):
    view = seen(role=Role.ADMIN, look=look)
    await carried_out(view, actions.create_topic(), name="orders", queues=1)
    await carried_out(view, actions.send_message("orders"), body="x")
    await carried_out(view, actions.create_group(), name="billing", max_retries=2)
    await carried_out(view, actions.reset_offsets("billing", "orders"), position="earliest")
    assert (await look.admin.lag("billing")).lag == 1
    await carried_out(view, actions.skip_waiting(await look.admin.lag("billing")))
    assert (await look.admin.lag("billing")).lag == 0
    change = actions.change_group(await look.admin.group("billing"))
    await carried_out(view, change, max_retries=5, may_consume=False, retry_pauses="5s..2h", ordered=True)
    settings = (await look.admin.group("billing")).settings["broker-0"]
    assert (settings.retry_max_times, settings.consume_enable) == (5, False)
    assert (text_of(settings.group_retry_policy), settings.consume_message_orderly) == ("5s..2h", True)
    await carried_out(view, actions.delete_group("billing"))
    assert "billing" not in await look.admin.groups()


async def test_a_setting_changes_while_the_broker_runs(two, look):
    address = two.brokers[0].address
    change = actions.change_setting("broker-0", address, {"fileReservedTime": "72"})
    view = seen(role=Role.ADMIN, look=look)
    assert await carried_out(view, change, name="fileReservedTime", value="48") == "fileReservedTime is 48"
    assert (await broker_settings(look.servers, address))["fileReservedTime"] == "48"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a=1", {"a": "1"}),
        (" a = 1 , b=x=y", {"a": "1", "b": "x=y"}),
        ('{"a": "1, 2"}', {"a": "1, 2"}),
    ],
)
def test_properties_are_pairs_or_json(text, expected):
    assert properties_in(text) == expected


@pytest.mark.parametrize("text", ["a", "=1", "a=1,b", '{"a": 1}', "{"])
def test_invalid_properties_are_an_error(text):
    with pytest.raises(ValueError, match="propert"):
        properties_in(text)


async def test_a_change_of_accounts_goes_on_after_a_broker_that_fails_and_names_it(tmp_path):
    accounts = tmp_path / "accounts.yml"
    accounts.write_text("accounts: [{accessKey: administrator, secretKey: secretOfAdmin, admin: true}]\n")
    keys = Credentials("administrator", "secretOfAdmin")
    async with (
        Cluster(tmp_path / "store", acl=True, acl_file=accounts) as cluster,
        ClusterView(cluster.namesrv, keys) as look,
    ):
        view = seen(role=Role.ADMIN, look=look)
        masters = {"absent": "127.0.0.1:1", "broker-0": cluster.brokers[0].address}
        of = BrokerAccounts("broker-0", masters, AccountList())
        with pytest.raises(ChangeFailed, match=r"failed at absent: .*it was done at broker-0"):
            await carried_out(view, actions.put_account(of), key="newcomer", secret="secretOfNewcomer")
        found = await catalogue.accounts(look.servers, masters["broker-0"])
        assert "newcomer" in {each.access_key for each in found.plain_access_configs}
        with pytest.raises(ChangeFailed, match=r"failed at absent: .*it was done at broker-0"):
            await carried_out(view, actions.set_white_addresses(of), patterns="10.9.8.7", everywhere=True)
