"""Messages of a real fork are sent again: each once, also after an interruption; what must not be sent is counted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sparrowmq.admin.admin import Admin
from sparrowmq.broker.broker_settings import BrokerRole
from sparrowmq.cli.store import store
from sparrowmq.client.client import Client
from sparrowmq.errors import RequestTimeout
from sparrowmq.protocol.messages.message import Message
from sparrowmq.testing.background import BackgroundCluster
from tests.cli.store.forks_of_logs import bodies, fork, going_on

COUNT = 20
MANY = 9000


async def plain(mq: Client) -> str:
    """Send one message that stays, and then the others in two queues."""
    await mq.send("orders", b"both")
    queues = await mq.queues("orders")
    sent = [
        await mq.send("orders", b"%02d" % number, tag="A", keys=f"k-{number}", queue=queues[number % 2])
        for number in range(COUNT)
    ]
    return sent[0].offset_msg_id


def run(cluster: BackgroundCluster | None, *words: object, code: int = 0, answer: str | None = None) -> Result:
    namesrv = ("-n", cluster.namesrv) if cluster else ()
    result = CliRunner().invoke(store, ["resend", *map(str, words), *namesrv], input=answer)
    assert result.exit_code == code, (result.output, result.exception)
    return result


def told(cluster: BackgroundCluster, *words: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(cluster, *words, "--yes", "-o", "json").stdout)
    return found


def count(cluster: BackgroundCluster) -> int:
    async def run() -> int:
        async with Admin(cluster.namesrv) as admin:
            return (await admin.topic("orders")).count

    return cluster.run(run())


def test_each_message_of_a_fork_comes_once_in_the_order_of_its_queue(tmp_path: Path) -> None:
    piece = fork(tmp_path, plain)
    with going_on(tmp_path) as cluster:
        assert bodies(cluster, 1) == [b"both"]
        dry = run(cluster, piece, "--dry-run").stdout
        assert "would send 20 messages again; 0 are there already" in dry
        assert "THERE ALREADY" in dry
        assert len(bodies(cluster, 1)) == 1, "a dry run sends nothing"
        assert "sent 20" not in run(cluster, piece, answer="n\n", code=1).stdout
        shown = run(cluster, piece, answer="y\n").stdout
        assert "send 20 messages again? [y/N]" in shown and f"not needed any more: rm {piece}" in shown
        found = bodies(cluster, 21)
        assert sorted(found) == sorted([b"both", *(b"%02d" % number for number in range(COUNT))])
        for queue in (0, 1):
            mine = [each for each in found if each != b"both" and int(each) % 2 == queue]
            assert mine == sorted(mine)
        again = run(cluster, piece, "--delete", "--yes").stdout
        assert "sent 0 messages again; 20 were there already" in again and f"deleted {piece}" in again
        assert not piece.exists() and len(bodies(cluster, 21)) == 21


def test_a_message_keeps_what_its_producer_gave_it(tmp_path: Path) -> None:
    async def sends(mq: Client) -> str:
        sent = await mq.send(Message("orders", b"x" * 5000, "A", ["k", "l"], {"colour": "red"}, flag=7))
        return sent.offset_msg_id

    async def stored(namesrv: str) -> tuple[object, ...]:
        async with Client(namesrv) as mq:
            (found,) = await mq.admin.find("orders", "k")
            one = found.stored
            kept = {name: value for name, value in one.properties.items() if name != "__CRC32#"}
            return found.msg_id, found.body, one.born_timestamp_ms, one.flag, one.queue_id, kept

    async def sends_and_reads(mq: Client) -> str:
        offset_id = await sends(mq)
        before.append(await stored(mq.admin.servers.namesrv))
        return offset_id

    before: list[tuple[object, ...]] = []
    piece = fork(tmp_path, sends_and_reads)
    with going_on(tmp_path) as cluster:
        run(cluster, piece, "--yes")
        assert [cluster.run(stored(cluster.namesrv))] == before


def test_messages_of_other_topics_stay_and_all_are_sent_without_a_check(tmp_path: Path) -> None:
    piece = fork(tmp_path, plain)
    with going_on(tmp_path) as cluster:
        assert told(cluster, piece, "--topic", "other")["sent"] == 0
        for _ in range(2):
            everything = told(cluster, piece, "--unchecked", "--topic", "orders")
            assert (everything["sent"], everything["there_already"]) == (COUNT, 0)
        assert len(bodies(cluster, 41)) == 41
        assert "keep the files" in run(cluster, piece, "--topic", "orders", "--yes").stdout


def test_transactions_recalls_and_requests_are_not_sent_and_counted(tmp_path: Path) -> None:
    async def sends(mq: Client) -> str:
        mq.check()(lambda _: None)
        async with mq.transaction("orders", b"its half stays"):
            first = await mq.send("orders", b"plain")
        async with mq.transaction("orders", b"committed"):
            pass
        later = await mq.send("orders", b"recalled", delay="61m")
        await mq.recall(later)
        await mq.send("orders", b"by a level", delay="1h")
        await mq.send("orders", b"by a time", delay="61m")
        with pytest.raises(ValueError, match="no"):
            async with mq.transaction("orders", b"rolled back"):
                raise ValueError("no")
        with pytest.raises(RequestTimeout):
            await mq.request("orders", b"question", timeout_s=0.2)
        return first.offset_msg_id

    piece = fork(tmp_path, sends)
    with going_on(tmp_path) as cluster:
        found = told(cluster, piece, "--delete")
        assert found["sent"] == 4 and piece.exists() and not found["deleted"]
        left = found["left_out"]
        assert left["half"] >= 4 and (left["open"], left["recall"], left["recalled"], left["request"]) == (1,) * 4
        assert sorted(bodies(cluster, 2)) == [b"committed", b"plain"]
        again = told(cluster, piece)
        assert (again["sent"], again["there_already"]) == (0, 4), "those for later wait, and are found"


def test_damage_is_passed_over_and_counted(tmp_path: Path) -> None:
    piece = fork(tmp_path, plain)
    content = piece.read_bytes()
    at = content.index(b"k-7")
    piece.write_bytes(content[:at] + b"?" + content[at + 1 :])
    with going_on(tmp_path) as cluster:
        shown = run(cluster, piece, answer="y\n").stdout
        assert "sent 19 messages again" in shown and "damaged bytes, in 1 places" in shown
        assert b"07" not in bodies(cluster, 20)
    piece.write_bytes(b"x" * len(content))
    assert f"no message in {piece} can be read" in run(None, piece, code=1).output
    assert f"delete {piece}? [y/N]" in run(None, piece, "--delete", answer="n\n", code=1).output
    run(None, piece, "--delete", answer="y\n")
    assert not piece.exists()


@pytest.mark.slow
def test_an_interrupted_run_is_gone_on_with_and_no_message_comes_twice(tmp_path: Path) -> None:
    async def many(mq: Client) -> str:
        first = await mq.send("orders", b"0000")
        await mq.send_many([Message("orders", b"%04d" % number) for number in range(1, MANY)])
        return first.offset_msg_id

    piece = fork(tmp_path, many)
    with going_on(tmp_path) as cluster:
        command = [sys.executable, "-m", "sparrowmq", "store", "resend", str(piece), "--yes"]
        environment = {**os.environ, "NAMESRV_ADDR": cluster.namesrv}
        for end in (signal.SIGINT, signal.SIGKILL):
            before = count(cluster)
            running = subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE)
            while count(cluster) == before:
                time.sleep(0.001)
            running.send_signal(end)
            said, _ = running.communicate(timeout=30)
            assert running.returncode != 0, said
            if end is signal.SIGINT:
                assert "messages were sent; run the same command again to go on" in said
        assert 0 < count(cluster) < MANY, "it was interrupted in the middle"
        rest = told(cluster, piece)
        assert rest["sent"] > 0 and rest["sent"] + rest["there_already"] == MANY
        assert sorted(bodies(cluster, MANY)) == [b"%04d" % number for number in range(MANY)]


def test_what_cannot_be_done_is_said(tmp_path: Path) -> None:
    piece = fork(tmp_path, plain)
    assert "there is no file" in run(None, tmp_path / "x.forked", code=1).output
    other = tmp_path / "notes.txt"
    other.write_text("x")
    assert "is no piece of a log" in run(None, other, code=1).output
    assert "127.0.0.1:1" in run(None, piece, "-n", "127.0.0.1:1", "--yes", code=1).output
    assert "leave out --topic" in run(None, piece, "--delete", "--topic", "orders", code=2).output
    with BackgroundCluster(tmp_path / "other") as another:
        said = run(another, piece, "--yes", code=1).output
        assert "the cluster has no topic orders" in said and "sparrowmq topic create orders" in said
    with going_on(tmp_path, index=False) as cluster:
        said = run(cluster, piece, "--yes", code=1).output
        assert "messageIndexEnable is false" in said and "--unchecked" in said
        assert told(cluster, piece, "--unchecked")["sent"] == COUNT


def test_a_send_without_a_slave_ends_it_with_the_number_done(tmp_path: Path) -> None:
    piece = fork(tmp_path, plain)
    with going_on(tmp_path, role=BrokerRole.SYNC_MASTER) as cluster:
        said = run(cluster, piece, "--delete", "--yes", code=1).output
        assert "0 of 20 messages were sent; run the same command again to go on" in said
        assert "SLAVE_NOT_AVAILABLE" in said and "sparrowmq doctor" in said and piece.exists()
    with going_on(tmp_path) as cluster:
        assert told(cluster, piece, "--delete")["there_already"] == 2, "one of each queue"
        assert len(bodies(cluster, 21)) == 21


def test_with_accounts_an_administrator_may_do_it_and_another_account_may_not(tmp_path: Path) -> None:
    piece = fork(tmp_path, plain)
    accounts = tmp_path / "accounts.yml"
    accounts.write_text(
        "accounts:\n  - accessKey: operator\n    secretKey: '12345678'\n    admin: true\n"
        "  - accessKey: consumer\n    secretKey: '12345678'\n    defaultTopicPerm: SUB\n"
    )
    with going_on(tmp_path, acl=True, acl_file=accounts) as cluster:
        keys = ("--secret-key", "12345678", "--access-key")
        said = run(cluster, piece, "--dry-run", *keys, "consumer").stdout
        assert "would send 20 messages again" in said, "a dry run needs no right to write"
        assert "sent" not in run(cluster, piece, "--yes", *keys, "consumer", code=1).stdout
        assert "sent 20 messages again" in run(cluster, piece, "--yes", *keys, "operator").stdout
