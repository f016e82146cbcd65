"""The console beside a cluster of real processes, of which some are frozen and killed, in a real browser."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.catalogue import topic_table
from sparrowmq.client.client import Client
from sparrowmq.console.cluster_view import ClusterView
from tests.console.visiting import ROOT, Visit
from tests.interop.apache import free_ports
from tests.interop.servers import OurBroker, OurNamesrv

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

PASSWORD = "a long password"


@contextmanager
def console(namesrv: str, *words: str) -> Iterator[str]:
    """A console as a process; its address."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "sparrowmq",
            "console",
            "-n",
            namesrv,
            "--port",
            "0",
            "--user",
            "boss:admin",
            *words,
        ],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"SPARROWMQ_CONSOLE_PASSWORD": PASSWORD},
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[4]
    finally:
        process.terminate()
        process.communicate(timeout=60)


async def logged_in(browser, url) -> Visit:
    context = await browser.new_context(viewport={"width": 1280, "height": 900})
    page = await context.new_page()
    page.set_default_timeout(60_000)
    await page.goto(url)
    await page.get_by_label("User").fill("boss")
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Log in").click()
    return Visit(page, url)


async def fill(namesrv: str) -> None:
    """Topic orders with 4 queues at each broker and 8 messages, and group billing, which has read none."""
    async with Admin(namesrv) as admin, Client(namesrv) as mq:
        await admin.create_topic("orders", queues=4)
        await admin.create_group("billing")
        for number in range(16):
            await mq.send("orders", f"body {number}".encode(), keys=["k"])
        await admin.reset("billing", "orders", "earliest")


async def has_topic(namesrv: str, broker: str) -> None:
    """Wait until a broker has the topic orders."""
    async with ClusterView(namesrv) as look, asyncio.timeout(60):
        while "orders" not in await topic_table(look.servers, broker):
            await asyncio.sleep(0.1)


@pytest.mark.slow
async def test_a_master_that_dies_is_shown_in_red_with_all_that_suffers(chromium, tmp_path: Path):
    with OurNamesrv() as namesrv, OurBroker(namesrv.address, tmp_path / "a", {"brokerName": "broker-a"}):
        master = OurBroker(namesrv.address, tmp_path / "b", {"brokerName": "broker-b"})
        with master, console(namesrv.address) as url:
            await fill(namesrv.address)
            async with Admin(namesrv.address) as admin:
                await admin.create_topic("%DLQ%billing", queues=1)
            boss = await logged_in(chromium, url)
            await boss.go("conditions")
            await boss.sees("Nothing is wrong")
            assert await boss.page.locator(".alarm").is_hidden()
            await boss.go("topics")  # so that the console has read the new topic
            await boss.sees("orders")
            await boss.go("topics/orders")
            await boss.sees("16 messages in 8 queues")
            assert master.process is not None
            master.process.send_signal(signal.SIGSTOP)
            await boss.sees(
                ": no_answer",
                "4 queues of 8 are missing",
                "Left out, because no master answers: 4 queues of broker-b",
            )
            await boss.go("")
            await boss.sees("1 of 2", ": no_answer", "What to do: see whether its process hangs")
            await boss.go("dlq?group=billing")
            await boss.sees("Left out, because no master answers: 1 queue of broker-b", "0 of 0 messages")
            await boss.go("tail?topic=orders")
            await boss.sees("Left out, because no master answers: 4 queues of broker-b", "following orders")
            async with Client(namesrv.address) as mq:
                [queue, *_] = [q for q in await mq.queues("orders") if q.broker_name == "broker-a"]
                await mq.send("orders", b"while a broker hangs", queue=queue)
            await boss.sees("1 of 1 messages fit")
            master.process.kill()
            await boss.go("")
            await boss.sees("broker broker-b (master) at", ": missing")
            await boss.sees("1 of 2", "4 queues cannot be used, of the topics", "Groups that consume them:")
            card = boss.page.locator(".trouble-critical")
            assert await card.get_by_role("link", name="orders").count() == 1
            assert await card.get_by_role("link", name="billing").count() == 1
            await boss.go("topics/orders")
            await boss.sees("4 queues of 8 are missing. Left out, because no master answers: 4 queues of broker-b")
            await boss.go("groups/billing")
            await boss.sees(": missing", "What to do: see whether it runs")
            await boss.go("cluster/broker-b")
            await boss.sees(": missing")
            await boss.go("messages?topic=orders&age=1d")
            await boss.sees("Left out, because no master answers: 4 queues of broker-b", "9 messages")
            await boss.page.locator(".alarm.is-critical").click()
            await boss.page.wait_for_url("**/conditions")
            await boss.press("Forget broker-b")
            await boss.press("Forget")
            await boss.sees("broker broker-b is forgotten", "Nothing is wrong")


@pytest.mark.slow
async def test_a_dead_master_whose_slave_lives_is_no_healthy_cluster(chromium, tmp_path: Path):
    with OurNamesrv() as namesrv:
        broker = {"brokerName": "broker-b", "slaveReadEnable": "true"}
        as_master = broker | {"brokerRole": "ASYNC_MASTER", "haListenPort": free_ports(1)[0]}
        master = OurBroker(namesrv.address, tmp_path / "b", as_master)
        slave = OurBroker(namesrv.address, tmp_path / "s", broker | {"brokerRole": "SLAVE", "brokerId": "1"})
        with OurBroker(namesrv.address, tmp_path / "a", {"brokerName": "broker-a"}), master:
            await fill(namesrv.address)
            with slave:  # it reads the topics at its start, and later once in a while
                await has_topic(namesrv.address, slave.address)
                with console(namesrv.address) as url:
                    boss = await logged_in(chromium, url)
                    await boss.go("")
                    await boss.sees("3 of 3")
                    assert master.process is not None
                    master.process.kill()
                    await boss.sees("2 of 3", "broker broker-b: no_master", "4 queues cannot be used")
                    await boss.go("topics/orders")
                    await boss.sees("broker broker-b: no_master", "4 queues of 8 are missing")
                with console(namesrv.address) as url:  # started after the death
                    boss = await logged_in(chromium, url)
                    await boss.go("")
                    await boss.sees("broker broker-b: no_master", "at least since", "4 queues cannot be used")


@pytest.mark.slow
async def test_page_of_a_broker_shows_its_new_role(chromium, tmp_path: Path):
    """An election changes the roles while the page is open."""
    with OurNamesrv() as namesrv:
        place = namesrv.address, tmp_path / "s"
        port = free_ports(1)[0]
        broker = {"brokerName": "broker-b"}
        with console(namesrv.address) as url:
            boss = await logged_in(chromium, url)
            with OurBroker(*place, broker | {"brokerRole": "SLAVE", "brokerId": "1"}, port=port) as slave:
                await boss.go("cluster/broker-b")
                await boss.sees(f"slave 1 at {slave.address}, cluster")
            with OurBroker(*place, broker | {"brokerRole": "ASYNC_MASTER", "brokerId": "0"}, port=port):
                await boss.sees(f"master at {slave.address}, cluster")


@pytest.mark.slow
async def test_a_condition_of_a_broker_is_shown_with_its_remedy(chromium, tmp_path: Path):
    with OurNamesrv() as namesrv, OurBroker(namesrv.address, tmp_path / "a", {"brokerName": "broker-a"}):
        await fill(namesrv.address)
        with console(namesrv.address) as url:
            boss = await logged_in(chromium, url)
            await boss.go("cluster/broker-a")
            async with Admin(namesrv.address) as admin:
                await admin.drain("broker-a")
                await boss.sees(": drained", "What to do: when it shall take messages again")
                assert await boss.page.locator(".trouble-warning").count() == 1
                await boss.page.locator(".alarm.is-warning").wait_for()
                await boss.page.get_by_role("button", name="Copy sparrowmq broker undrain broker-a").click()
                await boss.sees("copied: command")
                await admin.undrain("broker-a")
            await boss.page.locator(".trouble-warning").wait_for(state="detached")
            await boss.page.locator(".alarm").wait_for(state="hidden")


@pytest.mark.slow  # its states are in tests/conditions, without a browser
async def test_dead_name_servers_are_the_causes_and_hide_no_other_condition(chromium, tmp_path: Path):
    with OurNamesrv() as one, OurNamesrv() as other:
        both = f"{one.address};{other.address}"
        with OurBroker(both, tmp_path / "a", {"brokerName": "broker-a"}), console(both) as url:
            boss = await logged_in(chromium, url)
            await boss.go("conditions")
            await boss.sees("Nothing is wrong")
            assert one.process is not None and other.process is not None
            one.process.kill()
            dead = f"name server {one.address}: name_server_dead"
            await boss.sees(dead, ": name_server_away", f"This is an effect of {dead}")
            await boss.page.locator(".alarm.is-warning", has_text="1").wait_for()
            async with Admin(other.address) as admin:
                await admin.drain("broker-a")
            await boss.sees(": drained")
            other.process.kill()
            await boss.sees(": no_name_server", ": unregistered", ": drained")
