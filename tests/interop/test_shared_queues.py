"""Java's push consumers that leave the sharing of queues to the broker: they pull, or pop where an operator says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.interop.apache import java_program
from tests.interop.servers import OURS, running

pytestmark = pytest.mark.slow

MEMBERS = Path(__file__).parent / "java" / "SharedQueues.java"
COUNT = 100


@pytest.mark.parametrize("server", [OURS, pytest.param("apache-5.4.0", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("mode", ["PULL", "POP"])
def test_members_of_java_consume_each_message_once_and_failed_ones_again(server, mode, tmp_path):
    with running(server, tmp_path) as target:
        target.create_topic("Shared", queues=2)
        target.create_group("sharing", retries=16)
        body = {"topic": "Shared", "consumerGroup": "sharing", "mode": mode, "popShareQueueNum": 0}
        reply = target.ask(401, body=json.dumps(body).encode())
        assert reply.code == 0, reply.remark
        done = java_program("5.4.0", MEMBERS, target.namesrv, "Shared", "sharing", str(COUNT), "90", limit_s=240)
        popped = COUNT + 2 if mode == "POP" else 0
        assert f"once {COUNT}, tries 2, popped {popped}" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]
