"""The short form of `./run fuzz`, and that each of its parts sees a fault."""

from __future__ import annotations

import asyncio
import os
import random

import pytest

from sparrowmq.errors import RemoteProtocolError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.requests.request_table import ROWS, Role
from sparrowmq.remoting.server import Server
from sparrowmq.remoting.session import Session
from tests.fuzz.decoders import Decoder, Tried, decoders, try_all, try_one
from tests.fuzz.frames import Frames
from tests.fuzz.live import GROWTH_BYTES, Live, late_growth
from tests.fuzz.pushed import push_to_client
from tests.interop.servers import OurBroker, OurNamesrv

SEED = int(os.environ.get("FUZZ_SEED", "20261120"))


def test_decoders_return_or_refuse_in_words():
    tried = try_all(SEED, 40_000)
    assert tried.violations == []
    assert all(tried.runs[name] > tried.refused.get(name, 0) for name in tried.runs)


def test_servers_answer_every_request_and_live(tmp_path):
    with OurNamesrv() as namesrv, OurBroker(namesrv.address, tmp_path) as broker:
        for server, role, wanted in ((broker, Role.BROKER, 2000), (namesrv, Role.NAMESRV, 1000)):
            found = Live(server.address, role, SEED, server.said, server.pid).run(wanted)
            assert found.violations == []
            served = {row.code for row in ROWS if row.served_by & role}
            assert served <= found.sent.keys()
            assert sum(count for (_, code), count in found.answers.items() if code == 0) > wanted / 10


async def test_the_client_answers_whatever_is_pushed_to_it():
    found = await push_to_client(SEED, 1000)
    assert found.violations == []
    assert {row.code for row in ROWS if row.served_by & Role.CLIENT} <= found.sent.keys()


async def test_a_server_that_does_not_answer_is_noticed():
    def silent(session: Session, command: object) -> None:
        pass

    server = Server(silent, SystemClock(), "127.0.0.1", 0)
    async with asyncio.TaskGroup():
        await server.start()
        live = Live(f"127.0.0.1:{server.port}", Role.BROKER, SEED, str, None, answer_limit_s=0.2)
        found = await asyncio.to_thread(live.run, 64)
        await server.stop()
    assert "timed out" in found.violations[0] and "the first b" in found.violations[0]


def test_a_trace_in_a_log_is_noticed(tmp_path):
    with OurNamesrv() as namesrv:
        live = Live(namesrv.address, Role.NAMESRV, SEED, lambda: "Traceback (most recent call last)", None)
        assert "it logged: Traceback" in live.run(64).violations[0]


def test_memory_that_grows_is_told_from_memory_that_waits_for_its_collector():
    plateau = [min(40, 20 + step) + step % 9 for step in range(160)]
    leak = [20 + step * 0.05 + step % 9 for step in range(160)]
    assert late_growth([int(size * 1e6) for size in plateau]) <= 0
    assert late_growth([int(size * 1e6) for size in leak]) > GROWTH_BYTES


@pytest.mark.parametrize(("fault", "is_fault"), [(KeyError("x"), True), (RemoteProtocolError("no"), False)])
def test_an_error_that_is_not_ours_is_noticed(fault, is_fault):
    def decode(raw: bytes) -> None:
        raise fault

    tried = Tried()
    try_one(Decoder("faulty", decode, [b"x"]), b"x", tried)
    assert bool(tried.violations) is is_fault


def test_the_same_seed_makes_the_same_frames():
    one, two = (Frames(random.Random(5), Role.BROKER) for _ in range(2))
    assert [one.next() for _ in range(50)] == [two.next() for _ in range(50)]
    assert {decoder.name for decoder in decoders(random.Random(5))} == {
        decoder.name for decoder in decoders(random.Random(6))
    }
