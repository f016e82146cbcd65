"""Name servers: their settings, values by namespace and key, the order of topics, and brokers without writes.

Source: the classes of org.apache.rocketmq.tools.command.namesrv and UpdateOrderConfCommand, Java 4.9.8.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sparrowmq.cli.mqadmin import java
from sparrowmq.cli.mqadmin.call import Call
from sparrowmq.cli.mqadmin.failures import Failure
from sparrowmq.client.admin import operations as operations
from sparrowmq.protocol.names import ORDER_TOPICS


async def update_kv_config(call: Call) -> None:
    await _put(call, call.text("s"), call.text("k"), call.text("v"))
    call.line("create or update kv config to namespace success.")


async def delete_kv_config(call: Call) -> None:
    await _delete(call, call.text("s"), call.text("k"))
    call.line("delete kv config from namespace success.")


async def update_order_conf(call: Call) -> None:
    topic, method = call.text("t"), call.text("m")
    if method == "get":
        value = await operations.value_of(call, ORDER_TOPICS, topic)
        call.write(f"get orderConf success. topic=[{topic}], orderConf=[{java.truth(value)}] ")
    elif method == "put":
        value = call.text("v")
        if not value:
            raise Failure("java.lang.Exception", "please set orderConf with option -v.")
        await put_order(call, topic, value)
        call.write(f"update orderConf success. topic=[{topic}], orderConf=[{value}]")
    elif method == "delete":
        await _delete(call, ORDER_TOPICS, topic)
        call.write(f"delete orderConf success. topic=[{topic}]")
    else:
        call.show_usage()


async def put_order(call: Call, topic: str, value: str) -> None:
    """Set the number of queues that an ordered topic has at each broker. Raises: Failure."""
    await _put(call, ORDER_TOPICS, topic, value)


async def put_order_of_broker(call: Call, topic: str, row: str) -> None:
    """Set it for one broker, as `broker:queues`; other brokers stay as they are. Raises: Failure."""
    try:
        known = await operations.value_of(call, ORDER_TOPICS, topic) or ""
    except Failure as failure:
        call.complain(failure)
        call.failed = False  # There was none yet.
        known = ""
    rows = {each.partition(":")[0]: each for each in (*filter(None, known.split(";")), row)}
    await put_order(call, topic, ";".join(each for _, each in java.table(rows)))


async def get_namesrv_config(call: Call) -> None:
    for address in call.namesrvs:
        settings = await operations.namesrv_settings(call, address)
        call.line("============%s============", address)
        for key, value in java.table(settings):
            call.line("%-50s=  %s", key, value)


async def update_namesrv_config(call: Call) -> None:
    key, value = call.text("k"), call.text("v")
    for address in call.namesrvs:
        await operations.change_namesrv_settings(call, address, {key: value})
    given = f"[{', '.join(call.namesrvs)}]" if call.has("n") else ""
    call.line("update name server config success!%s\n%s : %s", given, key, value)


async def wipe_write_perm(call: Call) -> None:
    await _change_perm(call, "wipe", operations.hide_from_producers)


async def add_write_perm(call: Call) -> None:
    await _change_perm(call, "add", operations.show_to_producers)


async def _change_perm(call: Call, verb: str, change: Callable[[Call, str, str], Awaitable[int]]) -> None:
    broker = call.text("b")
    for address in call.namesrvs:
        said = f"{verb} write perm of broker[{broker}] in name server[{address}]"
        try:
            count = await change(call, address, broker)
        except Failure as failure:
            call.line("%s Failed", said)
            call.complain(failure)
        else:
            call.line("%s OK, %d", said, count)


async def _put(call: Call, namespace: str, key: str, value: str) -> None:
    await _at_each(call, lambda address: operations.put_value(call, address, namespace, key, value))


async def _delete(call: Call, namespace: str, key: str) -> None:
    await _at_each(call, lambda address: operations.delete_value(call, address, namespace, key))


async def _at_each(call: Call, change: Callable[[str], Awaitable[None]]) -> None:
    """Change all name servers; then raise the last refusal. Raises: Failure."""
    refused: Failure | None = None
    for address in call.namesrvs:
        try:
            await change(address)
        except Failure as failure:
            refused = failure
    if refused is not None:
        raise refused
