"""Name servers: their settings, values by namespace and key, the order of topics, and brokers without writes.

Source: the classes of org.apache.rocketmq.tools.command.namesrv and UpdateOrderConfCommand, Java 4.9.8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sparrowmq.cli.mqadmin import java
from sparrowmq.cli.mqadmin.call import Call
from sparrowmq.cli.mqadmin.failures import Failure
from sparrowmq.protocol.requests import settings_text
from sparrowmq.protocol.requests.namesrv_headers import (
    AddWritePermOfBroker,
    DeleteKVConfig,
    GetKVConfig,
    GetNamesrvConfig,
    PutKVConfig,
    UpdateNamesrvConfig,
    WipeWritePermOfBroker,
)
from sparrowmq.protocol.wire.header import Request

ORDER: Final = "ORDER_TOPIC_CONFIG"  # the namespace of ordered topics


# Values -------------------------------------------------------------------------------------------------------------


async def update_kv_config(call: Call) -> None:
    """Keep a value at all name servers."""
    await _tell_all(call, PutKVConfig(call.text("s"), call.text("k"), call.text("v")))
    call.line("create or update kv config to namespace success.")


async def delete_kv_config(call: Call) -> None:
    """Forget a value at all name servers."""
    await _tell_all(call, DeleteKVConfig(call.text("s"), call.text("k")))
    call.line("delete kv config from namespace success.")


async def update_order_conf(call: Call) -> None:
    """Look at, set or forget on which brokers' queues a topic is ordered."""
    topic, method = call.text("t"), call.text("m")
    if method == "get":
        value = (await call.ask_namesrv(GetKVConfig(ORDER, topic))).header.value
        call.write(f"get orderConf success. topic=[{topic}], orderConf=[{java.truth(value)}] ")
    elif method == "put":
        value = call.text("v")
        if not value:
            raise Failure("java.lang.Exception", "please set orderConf with option -v.")
        await put_order(call, topic, value)
        call.write(f"update orderConf success. topic=[{topic}], orderConf=[{value}]")
    elif method == "delete":
        await _tell_all(call, DeleteKVConfig(ORDER, topic))
        call.write(f"delete orderConf success. topic=[{topic}]")
    else:
        call.show_usage()


async def put_order(call: Call, topic: str, value: str) -> None:
    """Say how many queues of an ordered topic each broker has. Raises: Failure."""
    await _tell_all(call, PutKVConfig(ORDER, topic, value))


async def put_order_of_broker(call: Call, topic: str, row: str) -> None:
    """Say so of one broker, `broker:queues`; the others stay as they are. Raises: Failure."""
    try:
        known = (await call.ask_namesrv(GetKVConfig(ORDER, topic))).header.value or ""
    except Failure as failure:
        call.complain(failure)
        call.failed = False  # There was none yet.
        known = ""
    rows = {each.partition(":")[0]: each for each in (*filter(None, known.split(";")), row)}
    await put_order(call, topic, ";".join(each for _, each in java.table(rows)))


# Settings -----------------------------------------------------------------------------------------------------------


async def get_namesrv_config(call: Call) -> None:
    """The settings of each name server."""
    for address in call.namesrvs:
        answer = await call.ask(address, GetNamesrvConfig())
        call.line("============%s============", address)
        for key, value in java.table(settings_text.parse(answer.body)):
            call.line("%-50s=  %s", key, value)


async def update_namesrv_config(call: Call) -> None:
    """Change a setting of each name server."""
    key, value = call.text("k"), call.text("v")
    body = settings_text.render({key: value})
    for address in call.namesrvs:
        await call.ask(address, UpdateNamesrvConfig(), body)
    given = f"[{', '.join(call.namesrvs)}]" if call.has("n") else ""
    call.line("update name server config success!%s\n%s : %s", given, key, value)


# Brokers ------------------------------------------------------------------------------------------------------------


async def wipe_write_perm(call: Call) -> None:
    """Let no producer find a broker."""
    await _change_perm(call, "wipe", WipeWritePermOfBroker, lambda header: header.wipe_topic_count)


async def add_write_perm(call: Call) -> None:
    """Let producers find a broker again."""
    await _change_perm(call, "add", AddWritePermOfBroker, lambda header: header.add_topic_count)


async def _change_perm(
    call: Call, verb: str, request: Callable[[str], Request[Any]], count: Callable[[Any], int]
) -> None:
    broker = call.text("b")
    for address in call.namesrvs:
        said = f"{verb} write perm of broker[{broker}] in name server[{address}]"
        try:
            answer = await call.ask(address, request(broker))
        except Failure as failure:
            call.line("%s Failed", said)
            call.complain(failure)
        else:
            call.line("%s OK, %d", said, count(answer.header))


async def _tell_all(call: Call, request: Request[Any]) -> None:
    """Tell all name servers; the last one's refusal counts, after all were told. Raises: Failure."""
    refused: Failure | None = None
    for address in call.namesrvs:
        try:
            await call.ask(address, request)
        except Failure as failure:
            refused = failure
    if refused is not None:
        raise refused
