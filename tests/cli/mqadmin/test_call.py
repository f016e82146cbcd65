import asyncio
import io
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sparrowmq.admin.catalogue import broker_figures
from sparrowmq.admin.servers import Servers
from sparrowmq.cli.mqadmin.call import Call
from sparrowmq.cli.mqadmin.java import Failure
from sparrowmq.cli.mqadmin.subcommand_table import COMMANDS
from sparrowmq.client.cluster.network import Network
from sparrowmq.protocol.requests.admin_headers import GetTopicStats


def call_with(servers: Servers | None = None, **given: str) -> tuple[Call, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    return Call(COMMANDS[0], given, servers, out, err), out, err  # type: ignore[arg-type]


def test_values_are_read_without_blanks_and_numbers_are_checked() -> None:
    call, _, _ = call_with(t=" T ", r=" 7 ", w="many", o="TRUE", u="yes")
    assert (call.text("t"), call.number("r"), call.number("p", 6)) == ("T", 7, 6)
    assert (call.is_true("o"), call.is_true("u", True), call.is_true("s", True)) == (True, False, True)
    with pytest.raises(Failure, match='NumberFormatException: For input string: "many"'):
        call.number("w")


def test_a_complaint_goes_to_stderr_and_the_call_has_failed() -> None:
    call, out, err = call_with()
    call.line("%-4s|%d", "a", 1)
    call.complain(Failure("java.lang.Exception", "no"))
    assert (out.getvalue(), err.getvalue(), call.failed) == ("a   |1\n", "java.lang.Exception: no\n", True)


def test_errors_become_javas_where_they_are_asked(admin) -> None:
    async def ask() -> list[str]:
        said = []
        async with Network(admin.cluster.namesrv) as network:
            call, _, _ = call_with(Servers(network, 5.0))
            for question in (call.route("Absent"), call.ask(admin.broker, GetTopicStats("Absent"))):
                with pytest.raises(Failure) as failed:
                    await question
                said.append(str(failed.value).splitlines()[0])
        return said

    route, stats = asyncio.run(ask())
    assert "MQClientException: CODE: 17  DESC: No topic route info in name server for the topic: Absent" in route
    assert f"MQBrokerException: CODE: 17  DESC: topic[Absent] not exist BROKER: {admin.broker}" in stats


@asynccontextmanager
async def silent_server() -> AsyncIterator[str]:
    """Yield the address of a server that takes connections and never answers."""
    taken: list[asyncio.StreamWriter] = []
    async with await asyncio.start_server(lambda _, writer: taken.append(writer), "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"
        for writer in taken:
            writer.close()


def test_a_silent_server_is_waited_for_once_and_named_while_the_others_answer(admin) -> None:
    async def ask() -> None:
        async with Network(admin.cluster.namesrv) as network, silent_server() as silent:
            call, _, err = call_with(Servers(network, 0.2))
            both = [silent, admin.broker]
            for _ in range(20):  # a second wait for each would take 4 s
                assert len(await call.all_answers(both, lambda address: broker_figures(call, address))) == 1
            assert "brokerVersion" in await call.first_answer(both, lambda address: broker_figures(call, address))
            assert err.getvalue() == "" and not call.failed
            with pytest.raises(Failure, match=f"<{silent}> timeout") as failed:
                call.check_all_answered()
            call.name_silent(failed.value)
            assert not call.failed
            for _ in range(2):
                call.name_silent()
            assert call.failed and err.getvalue().count(f"<{silent}> timeout, 200(ms)") == 1
            with pytest.raises(Failure, match=f"<{silent}> timeout"):
                await call.all_answers([silent], lambda address: broker_figures(call, address))
            await call.pause(0)
            began = time.monotonic()
            with pytest.raises(Failure):
                await call.first_answer([silent], lambda address: broker_figures(call, address))
            assert time.monotonic() - began > 0.15, "after a pause it is asked again"

    began = time.monotonic()
    asyncio.run(ask())
    assert time.monotonic() - began < 3
