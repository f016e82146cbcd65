"""docs/use/errors.md: it has every error, names no other, and quotes what is printed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable
from datetime import datetime, timedelta
from pathlib import Path

import click
import pytest

import sparrowmq
from sparrowmq import (
    Credentials,
    Message,
    MessageTooLarge,
    ProducerSettings,
    SendFailed,
    SparrowError,
    errors,
)
from sparrowmq.broker.broker import Broker
from sparrowmq.broker.broker_settings import BrokerRole, BrokerSettings
from sparrowmq.cli.main import main
from sparrowmq.store.vfs import Disk
from sparrowmq.testing.cluster import Cluster

PAGE = (Path(__file__).parents[1] / "docs" / "use" / "errors.md").read_text()
CLASSES = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, SparrowError)}
OF_OTHERS = {"ValueError"}  # classes on the page that are Python's
SECTION = re.compile(r"^## .*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
QUOTE = re.compile(r"```text\n(.*?)```", re.DOTALL)
PLACEHOLDER = re.compile(r"<[a-z ]+>")
SOON_S = 0.3
ACCOUNTS = """
accounts:
- accessKey: billing
  secretKey: "12345678"
  defaultTopicPerm: DENY
  topicPerms: [orders=PUB]
"""


def quotes(of: str) -> list[re.Pattern[str]]:
    """The quotes of the section that explains a class, as patterns."""
    sections = [section for section in SECTION.findall(PAGE) if not section.startswith("## All errors")]
    explaining = [section for section in sections if f"`{of}`" in section.splitlines()[0]]
    # Some are explained below another one's heading.
    explaining = explaining or [section for section in sections if f"`{of}`" in section]
    return [pattern(quote) for section in explaining for quote in QUOTE.findall(section)]


def pattern(quote: str) -> re.Pattern[str]:
    """A quote as a pattern: `<...>` is any text, as is what follows three dots at its end."""
    text = " ".join(quote.split())
    is_cut = text.endswith("...")
    literal = [re.escape(each) for each in PLACEHOLDER.split(text.removesuffix("..."))]
    return re.compile(".*?".join(literal) + (".*" if is_cut else ""), re.DOTALL)


def check_quoted(error: BaseException, of: str | None = None) -> None:
    """The page quotes the text of this error where it explains the class."""
    of = of or type(error).__name__
    assert any(each.fullmatch(str(error)) for each in quotes(of)), f"{of} is not quoted: {error}"


async def failure(of: Awaitable[object]) -> SparrowError:
    """The error that the call raises."""
    with pytest.raises(SparrowError) as raised:
        await of
    return raised.value


async def cause(of: Awaitable[object]) -> BaseException:
    """The cause of the SendFailed that the call raises."""
    error = await failure(of)
    assert isinstance(error, SendFailed) and error.cause is not None
    check_quoted(error)
    return error.cause


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path / "store", auto_create_topic=False) as cluster:
        yield cluster


@pytest.fixture
async def mq(cluster: Cluster) -> AsyncIterator[sparrowmq.Client]:
    """A client of a cluster that has the topic orders and makes no other."""
    async with sparrowmq.connect(cluster.namesrv) as mq:
        await mq.admin.create_topic("orders")
        yield mq


def test_the_page_has_every_error_in_its_tree_and_explains_it():
    tree = QUOTE.findall(PAGE)[-1]
    assert set(re.findall(r"^[│├└─ ]*([A-Z][a-zA-Z]+)(?=  |$)", tree, re.MULTILINE)) == CLASSES
    explained = PAGE.removesuffix(PAGE[PAGE.index("## All errors") :])
    bases = {"SparrowError", "NetworkError", "StoreError", "ProtocolError"}
    assert {name for name in CLASSES if f"`{name}`" not in explained} <= bases


def test_every_error_that_the_page_names_exists():
    named = set(re.findall(r"`([A-Z][a-z]+[A-Z]?\w*)`", PAGE))
    alike = {name for name in named if name.endswith(("Error", "Failed", "Unreachable", "Timeout", "Denied"))}
    in_headings = set(re.findall(r"^## .*$", PAGE, re.MULTILINE))
    alike |= {name for heading in in_headings for name in re.findall(r"`([A-Z]\w*[a-z]\w*)`", heading)}
    assert len(alike) > 20
    assert alike - OF_OTHERS <= CLASSES


def test_every_command_that_the_page_names_exists():
    named = set(re.findall(r"`sparrowmq ([a-z]+) ([a-z]+) ", PAGE))
    assert len(named) > 8
    assert isinstance(main, click.Group)
    for noun, verb in named:
        command = main.get_command(click.Context(main), noun)
        assert isinstance(command, click.Group) and verb in command.commands, (noun, verb)


async def test_a_send_without_name_server_and_its_cause():
    async with sparrowmq.connect("127.0.0.1:1") as mq:
        check_quoted(await cause(mq.send("orders", b"x", timeout_s=SOON_S)), "NameServerUnreachable")
        check_quoted(await failure(mq.admin.topics()), "NameServerUnreachable")
    check_quoted(await failure(mq.send("orders", b"x")), "ClientClosed")
    new = sparrowmq.connect("127.0.0.1:1")
    check_quoted(await failure(new.send("orders", b"x")), "ClientClosed")


async def test_a_topic_that_is_not_there_or_may_not_be_written(mq):
    check_quoted(await failure(mq.send("invoices", b"x")), "NoRoute")
    await mq.admin.create_topic("archive", perm="r")
    check_quoted(await failure(mq.send("archive", b"x")), "NoRoute")


async def test_a_broker_that_has_stopped(cluster, mq):
    await mq.send("orders", b"x")
    await cluster.brokers[0].__aexit__(None, None, None)
    check_quoted(await cause(mq.send("orders", b"x", timeout_s=SOON_S)), "BrokerUnreachable")


async def test_a_name_server_that_is_silent_or_closes():
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with sparrowmq.connect(f"127.0.0.1:{port}") as mq:
            error = await failure(mq.admin.topics())
            assert isinstance(error, errors.NameServerUnreachable)
            check_quoted(error)
            assert isinstance(error.reason, errors.ConnectionClosed)
            check_quoted(error.reason)


async def test_a_request_without_an_answer(mq):
    check_quoted(await failure(mq.request("orders", b"x", timeout_s=SOON_S)), "RequestTimeout")
    check_quoted(errors.RequestTimeout("127.0.0.1:10911", "PullMessage", 3.0))


@pytest.mark.parametrize("account", [None, Credentials("billing", "wrong-key"), Credentials("nobody", "12345678")])
async def test_an_account_that_is_wrong(tmp_path, account):
    (tmp_path / "plain_acl.yml").write_text(ACCOUNTS)
    async with (
        Cluster(tmp_path / "store", acl=True, acl_file=tmp_path / "plain_acl.yml") as cluster,
        sparrowmq.connect(cluster.namesrv, credentials=account) as mq,
    ):
        error = await cause(mq.send("orders", b"x"))
        assert isinstance(error, errors.AccessDenied)
        check_quoted(error)
        reasons = [row.split("<")[0] for row in re.findall(r"^\| `([^`]+)` +\|", PAGE, re.MULTILINE)]
        assert any(f": {reason}" in str(error) for reason in reasons), error


async def test_an_account_that_may_not(tmp_path):
    (tmp_path / "plain_acl.yml").write_text(ACCOUNTS)
    user = Credentials("billing", "12345678")
    async with (
        Cluster(tmp_path / "store", acl=True, acl_file=tmp_path / "plain_acl.yml") as cluster,
        sparrowmq.connect(cluster.namesrv, credentials=user) as mq,
    ):
        await mq.send("orders", b"x")
        error = await cause(mq.send("invoices", b"x"))
        assert "No default permission for topic:" in str(error) and "No default permission for topic:" in PAGE
        check_quoted(await failure(mq.admin.create_topic("invoices")), "ChangeFailed")


async def test_messages_that_cannot_be_sent(mq):
    for error in (
        await failure(mq.send("orders", 5)),
        await failure(mq.send("orders", {"id": object()})),
        await failure(mq.send("orders", b"")),
        await failure(mq.send("orders", b"x", properties={"amount": 5})),
        await failure(mq.send("orders", b"x", properties={"TAGS": "paid"})),
        await failure(mq.send("orders", b"x", keys="o 1")),
        await failure(mq.send("orders", b"x", delay="soon")),
        await failure(mq.send("orders", b"x", deliver_at=datetime.now())),
    ):
        check_quoted(error, "InvalidMessage")
    for topic in ("or.ders", "x" * 200):
        check_quoted(await failure(mq.send(topic, b"x")), "InvalidName")
    check_quoted(await failure(mq.admin.create_topic("TBW102")), "InvalidName")


async def test_messages_that_are_too_large_for_the_client_or_the_broker(mq):
    large = bytes(range(256)) * (5 << 12)
    error = await failure(mq.send("orders", large))
    assert isinstance(error, MessageTooLarge)
    check_quoted(error)
    # Not compressed, so that the broker gets all of it.
    bulk = mq.producer("bulk", ProducerSettings(max_bytes=16 << 20, compress_over_bytes=16 << 20))
    refusal = await cause(bulk.send("orders", large))
    check_quoted(refusal, "MessageTooLarge")
    check_quoted(refusal, "RemoteError")


async def test_a_time_that_is_too_far_away(mq):
    error = await cause(mq.send("orders", b"x", delay=timedelta(days=50)))
    assert isinstance(error, errors.RemoteError)
    assert any(each.fullmatch(error.remark) for each in quotes("InvalidMessage"))


async def test_sends_that_are_too_many(mq):
    eager = mq.producer("eager", ProducerSettings(waiting_bytes=10, window=1))
    with pytest.raises(errors.SendFailed) as raised:
        for _ in range(3):
            eager.send_soon("orders", b"x" * 1000)
    check_quoted(raised.value)
    failed = errors.SendManyFailed([errors.SendFailed("no"), Message("orders", b"x")])
    check_quoted(failed)


@pytest.mark.parametrize("is_able", [False, True])
async def test_a_filter_that_the_broker_cannot_do(tmp_path, is_able):
    async with (
        Cluster(tmp_path, property_filter=is_able) as cluster,
        sparrowmq.connect(cluster.namesrv) as mq,
    ):
        await mq.send("orders", b"x")
        consumer = mq.subscribe("orders", group="billing", where="amount >", start="earliest")
        with pytest.raises(errors.ConfigError) as raised:
            async with consumer:
                await anext(consumer)
        check_quoted(raised.value, "InvalidFilter")


async def test_settings_that_are_wrong(mq, monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    for call in (
        lambda: sparrowmq.connect(),
        lambda: sparrowmq.connect("127.0.0.1:99999"),
        lambda: mq.subscribe("orders", group="billing", start="now"),
        lambda: mq.transaction("orders", b"x"),
        lambda: mq.producer("payments").transaction("orders", b"x"),
    ):
        with pytest.raises(errors.ConfigError) as raised:
            call()
        check_quoted(raised.value, "ConfigError")
    check_quoted(await failure(anext(mq.subscribe("orders", group="billing"))), "ClientClosed")


async def test_what_is_not_there_and_what_is_there_already(mq):
    sent = await mq.send("orders", b"x")
    check_quoted(await failure(mq.admin.lag("billing", "orders")), "NoGroup")
    check_quoted(await failure(mq.admin.message("0" * 32, "orders")), "NoMessage")
    check_quoted(await failure(mq.admin.message(sent.offset_msg_id[:-4] + "4444")), "NoMessage")
    check_quoted(await failure(mq.admin.create_topic("orders")), "AlreadyThere")


async def test_a_transaction_that_ends_twice(mq):
    def check(message: sparrowmq.ReceivedMessage) -> None:
        return None

    payments = mq.producer("payments", check=check)
    not_begun = payments.transaction("orders", b"x")
    check_quoted(await failure(not_begun.commit()), "TransactionEnded")
    async with payments.transaction("orders", b"x") as transaction:
        await transaction.commit()
        check_quoted(await failure(transaction.rollback()), "TransactionEnded")


async def test_a_master_without_slave_says_so_in_the_status(tmp_path):
    async with (
        Cluster(tmp_path, role=BrokerRole.SYNC_MASTER) as cluster,
        sparrowmq.connect(cluster.namesrv) as mq,
    ):
        sent = await mq.send("orders", b"x")
        assert f"| `{sent.status.name}` |" in PAGE
    for status in sparrowmq.SendStatus:
        assert f"`{status.name}`" in PAGE
    check_quoted(errors.NotSafeInTime(10, "on disk", 5.0))
    check_quoted(errors.NoSlaveNear(11, "no slave is connected", 0))


async def test_a_disk_that_is_full(cluster, mq, monkeypatch):
    monkeypatch.setattr(Disk, "used_ratio", lambda disk, path: 0.97)
    retention = cluster.brokers[0].store.retention
    for _ in retention.run(0):
        pass
    assert retention.full_error is not None
    check_quoted(retention.full_error)
    check_quoted(errors.DiskFull("no room on the disk for /data; free some"))


async def test_a_store_that_is_in_use_damaged_or_of_another_size(tmp_path):
    async with Cluster(tmp_path) as cluster, sparrowmq.connect(cluster.namesrv) as mq:
        await mq.send("orders", b"x")
        second = Broker(BrokerSettings(port=0, store_path=tmp_path / "broker-0"))
        check_quoted(await failure(second.__aenter__()), "StoreLocked")
    check_quoted(await failure(Cluster(tmp_path, commit_log_file_bytes=8 << 20).__aenter__()), "BadStore")
    (log,) = (tmp_path / "broker-0" / "commitlog").iterdir()
    content = bytearray(log.read_bytes())
    content[90] ^= 0xFF
    log.write_bytes(content)
    check_quoted(await failure(Cluster(tmp_path).__aenter__()), "CorruptRecord")
