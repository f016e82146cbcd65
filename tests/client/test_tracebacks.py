"""The output of a user's first program that a SparrowError ends: a short traceback, and one sentence at its end."""

from __future__ import annotations

import asyncio
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sparrowmq.client.tracebacks import short_tracebacks
from sparrowmq.errors import NoGroup, RequestTimeout
from sparrowmq.testing.background import BackgroundCluster
from tests.remoting.test_pool import free_port

# The lines of Python itself: the header, `<module>` and asyncio's three frames; then the user's frame and the sentence.
ASYNC_LINES = 15
OUR_FRAME_LINES = 3
README = """
import asyncio
import sparrowmq

async def main():
    async with sparrowmq.connect("{namesrv}") as mq:
        sent = await mq.send("orders", b'{{"amount": 5}}', tag="paid", keys=["o-1"])
        print(sent.queue, sent.offset, sent.msg_id)

asyncio.run(main())
"""
ASYNC = """
import asyncio
import sparrowmq

async def main():
    async with sparrowmq.connect("{namesrv}", group="g", settings=sparrowmq.ProducerSettings(timeout_s=0.5)) as mq:
        @mq.check()
        def check(message):
            pass

        {call}

asyncio.run(main())
"""
BLOCKING = """
import sparrowmq
from sparrowmq import sync

with sync.connect("{namesrv}", group="g", settings=sparrowmq.ProducerSettings(timeout_s=0.5)) as mq:
    mq.check()(print)
    {call}
"""
CALLS = [
    'await mq.send("orders", b"1")',
    "async with mq.transaction('orders', b'1'): pass",
    'await mq.admin.lag("billing")',
]
MORE_CALLS = [
    'await mq.send_soon("orders", b"1")',
    'await mq.send_many([sparrowmq.Message("orders", b"1")])',
    'await mq.request("orders", b"1", timeout_s=0.5)',
    'await mq.queues("orders")',
    "await mq.admin.topics()",
    'await mq.pull_consumer(group="billing").queues("orders")',
]
SLOW = [pytest.param(call, marks=pytest.mark.slow) for call in MORE_CALLS]
REFUSED = "cannot ask name server {namesrv} \\(Connection refused.*\\); start one with `sparrowmq dev` or `mqnamesrv`"


@pytest.fixture
def nowhere() -> str:
    """The address of a name server that was stopped."""
    return f"127.0.0.1:{free_port()}"


def run(tmp_path: Path, source: str) -> list[str]:
    """The lines that a program prints as it fails."""
    program = tmp_path / "program.py"
    program.write_text(source)
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and not done.stdout
    return done.stderr.splitlines()


def is_short(lines: list[str], most_lines: int, sentence: str) -> None:
    text = "\n".join(lines)
    begin = lines.index("Traceback (most recent call last):")
    assert begin <= 1, text  # after at most one line of the log, as of a heartbeat that is denied
    assert len(lines) - begin <= most_lines and text.count("Traceback") == 1, text
    assert re.match(rf"sparrowmq\.errors\.\w+: .*{sentence}", lines[-1]), lines[-1]


@pytest.mark.covers("S-ERR-01")
def test_readme_program_ends_with_a_sentence_where_no_name_server_runs(tmp_path, nowhere):
    lines = run(tmp_path, README.format(namesrv=nowhere))
    is_short(lines, ASYNC_LINES + OUR_FRAME_LINES, REFUSED.format(namesrv=nowhere))
    assert sum("sparrowmq/" in line for line in lines) == 1


@pytest.mark.parametrize("call", [*CALLS, *SLOW])
def test_calls_end_with_a_sentence_where_no_name_server_runs(tmp_path, nowhere, call):
    lines = run(tmp_path, ASYNC.format(namesrv=nowhere, call=call))
    is_short(lines, ASYNC_LINES + OUR_FRAME_LINES, REFUSED.format(namesrv=nowhere))


@pytest.mark.slow
@pytest.mark.parametrize("call", [*CALLS, *MORE_CALLS[1:]])
def test_blocking_calls_end_with_a_sentence_where_no_name_server_runs(tmp_path, nowhere, call):
    blocking = call.replace("await ", "").replace("async ", "")
    lines = run(tmp_path, BLOCKING.format(namesrv=nowhere, call=blocking))
    is_short(lines, 12, REFUSED.format(namesrv=nowhere))


CREDENTIALS = """
accounts:
- accessKey: operator
  secretKey: secretOfOperator
  admin: true
"""


@pytest.mark.parametrize(
    ("settings", "call", "sentence"),
    [
        ({"auto_create_topic": False}, 'await mq.send("nothing", b"1")', "no route for topic 'nothing'"),
        ({}, 'await mq.admin.lag("nobody")', "there is no consumer group 'nobody'"),
        pytest.param({}, 'await mq.admin.message("0A000001")', "0A000001", marks=pytest.mark.slow),
        (
            {"ip": "127.0.0.9", "bind": "127.0.0.1"},
            'await mq.send("orders", b"1")',
            "cannot connect to 127.0.0.9:",
        ),
        ({"acl": True}, 'await mq.send("orders", b"1")', "the broker's access control does not allow it"),
        pytest.param(
            {"acl": True},
            'await mq.admin.create_topic("prices")',
            "the broker's access control does not allow it",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_other_errors_of_first_programs_end_with_a_sentence(tmp_path, settings, call, sentence):
    if "acl" in settings:
        settings = settings | {"acl_file": tmp_path / "plain_acl.yml"}
        settings["acl_file"].write_text(CREDENTIALS)
    with BackgroundCluster(tmp_path / "cluster", **settings) as cluster:
        lines = run(tmp_path, ASYNC.format(namesrv=cluster.namesrv, call=call))
        is_short(lines, ASYNC_LINES + OUR_FRAME_LINES, sentence)
        blocking = BLOCKING.format(namesrv=cluster.namesrv, call=call.replace("await ", ""))
        is_short(run(tmp_path, blocking), 12, sentence)


@short_tracebacks
class Shop:
    """Methods of each kind."""

    async def sell(self) -> None:
        try:
            await self._ask()
        except RequestTimeout:
            raise NoGroup("billing") from None

    async def _ask(self) -> None:
        raise RequestTimeout("a:1", "it", 3.0)

    async def fail(self) -> None:
        raise KeyError("a fault of ours")

    def price(self) -> int:
        return 5


async def test_the_log_has_the_frames_that_the_traceback_leaves_out(caplog):
    caplog.set_level(logging.DEBUG, "sparrowmq")
    with pytest.raises(NoGroup) as caught:
        await Shop().sell()
    assert [entry.name for entry in caught.traceback][1:] == ["call"]
    assert "in sell" in caplog.text and "there is no consumer group 'billing'" in caplog.text


async def test_other_exceptions_and_other_methods_stay_as_they_are():
    with pytest.raises(KeyError) as caught:
        await Shop().fail()
    assert [entry.name for entry in caught.traceback][-1] == "fail"
    with pytest.raises(RequestTimeout) as private:
        await Shop()._ask()
    assert [entry.name for entry in private.traceback][-1] == "_ask"
    assert Shop().price() == 5 and asyncio.iscoroutinefunction(Shop.sell) and Shop.sell.__name__ == "sell"
