"""Who may do what: each action of the table with each role."""

import ast
import inspect
from pathlib import Path

import pytest

import sparrowmq.console
from sparrowmq.client.admin.operations.broker_operations import broker_settings
from sparrowmq.console.actions import NEEDED, Actions, Forbidden
from sparrowmq.console.login.sessions import Session
from sparrowmq.console.reading.cluster_view import Look
from sparrowmq.console.users import Role

FOLDER = Path(sparrowmq.console.__file__).parent


def actions(role, look=None):
    return Actions(look or Look("127.0.0.1:1"), Session("somebody", role, 1e9))


def arguments(name):
    """Something for each argument that an action needs."""
    parameters = list(inspect.signature(getattr(Actions, name)).parameters.values())[1:]
    plain = [None for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    return plain, {each.name: None for each in parameters if each.kind is each.KEYWORD_ONLY}


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("name", NEEDED)
async def test_an_action_is_refused_without_its_role(name, role):
    """The name server is nowhere: who gets past the check fails otherwise, if at all."""
    plain, named = arguments(name)
    who = actions(role)
    if role >= NEEDED[name]:
        who.demand(NEEDED[name], name)
        assert who.may(name)
        return
    assert not who.may(name)
    with pytest.raises(Forbidden, match="needs the role"):
        await getattr(who, name)(*plain, **named)


@pytest.mark.parametrize("name", NEEDED)
async def test_nothing_can_be_done_after_the_log_out(name):
    plain, named = arguments(name)
    who = actions(Role.ADMIN)
    who.session.is_alive = False
    with pytest.raises(Forbidden, match="log in again"):
        await getattr(who, name)(*plain, **named)


def test_every_public_method_that_waits_is_in_the_table():
    waiting = {
        name for name, each in vars(Actions).items() if inspect.iscoroutinefunction(inspect.unwrap(each))
    }
    assert waiting == set(NEEDED)


def test_no_other_file_of_the_console_changes_anything():
    changes = {
        *(
            "create_topic",
            "change_topic",
            "delete_topic",
            "create_group",
            "change_group",
            "delete_group",
            "reset",
        ),
        *("resend", "send", "send_many", "send_soon", "send_nowait", "change_settings", "consume_directly"),
        *("put_account", "delete_account", "set_white_addresses"),
    }
    for file in FOLDER.rglob("*.py"):
        if file.name == "actions.py":
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in changes
            ):
                assert ast.unparse(node.func.value) == "view.actions", f"{file.name}:{node.lineno}"


async def test_who_did_what_is_logged_without_bodies_and_secrets(look, caplog):
    caplog.set_level("INFO", "sparrowmq.console.actions")
    who = actions(Role.ADMIN, look)
    await who.create_topic("orders", queues=1, perm="rw", cluster=None)
    await who.send("orders", body=b"hidden body", tag="t", keys=["k"], properties={"p": "hidden"}, delay=None)
    assert "somebody: create_topic orders queues=1 perm=rw" in caplog.text
    assert "somebody: send orders" in caplog.text and "hidden" not in caplog.text


async def test_a_change_is_seen_at_once(look):
    who = actions(Role.ADMIN, look)
    await look.topics()
    await who.create_topic("orders", queues=1, perm="rw", cluster=None)
    assert "orders" in await look.topics()
    await who.change_topic("orders", read_queues=2, write_queues=2, perm="r")
    assert (await look.topics())["orders"]["broker-0"].read_queue_nums == 2
    await who.delete_topic("orders")
    assert "orders" not in await look.topics()


async def test_a_group_is_made_moved_changed_and_deleted(look):
    who = actions(Role.ADMIN, look)
    await who.create_topic("orders", queues=1, perm="rw", cluster=None)
    await who.send("orders", body=b"x", tag=None, keys=[], properties={}, delay=None)
    await who.create_group("billing", max_retries=2, cluster=None)
    await who.reset("billing", "orders", "earliest")
    assert (await look.admin.lag("billing")).lag == 1
    await who.skip("billing", "orders")
    assert (await look.admin.lag("billing")).lag == 0
    await who.change_group("billing", max_retries=5, retry_queues=1, may_consume=False, may_broadcast=True)
    settings = (await look.admin.group("billing")).settings["broker-0"]
    assert (settings.retry_max_times, settings.consume_enable) == (5, False)
    await who.delete_group("billing")
    assert "billing" not in await look.admin.groups()


async def test_a_setting_changes_while_the_broker_runs(two, look):
    who = actions(Role.ADMIN, look)
    await who.change_settings(two.brokers[0].address, {"fileReservedTime": "48"})
    assert (await broker_settings(look.servers, two.brokers[0].address))["fileReservedTime"] == "48"
