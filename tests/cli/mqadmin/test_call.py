import asyncio
import io

import pytest

from sparrowmq.cli.mqadmin.call import Call
from sparrowmq.cli.mqadmin.failures import Failure
from sparrowmq.cli.mqadmin.subcommand_table import COMMANDS
from sparrowmq.client.admin.servers import Servers
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
    assert (
        "MQClientException: CODE: 17  DESC: No topic route info in name server for the topic: Absent" in route
    )
    assert f"MQBrokerException: CODE: 17  DESC: topic[Absent] not exist BROKER: {admin.broker}" in stats
