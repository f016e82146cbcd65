"""Each page on a cluster of Apache's: it opens without an error in the browser, and says what Apache does not tell."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

import sparrowmq
from tests.console.test_walk import paths
from tests.console.visiting import WIDE, Visit
from tests.interop.servers import running

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.nightly, pytest.mark.timeout(300)]


@pytest.mark.parametrize("name", ["apache-4.9.7", "apache-5.4.0"])
async def test_every_page_opens_on_a_cluster_of_apache(chromium, tmp_path, name):
    with running(name, tmp_path) as target:
        target.create_topic("orders")
        target.create_group("billing", 16)
        async with sparrowmq.connect(target.namesrv) as mq:
            msg_id = (await mq.send("orders", b'{"amount": 1}', tag="paid", keys=["order-1"])).msg_id
        with serving(target.namesrv) as line:
            context = await chromium.new_context(viewport=WIDE)
            try:
                page = await context.new_page()
                page.set_default_timeout(20_000)
                visit = Visit(page, line.split()[4])
                await log_in(visit, line.split("password ")[1].split(",")[0])
                silent = await walk(visit, msg_id)
                await visit.go("topics?sort=Messages&order=down")
                row = page.locator("tbody tr", has=page.get_by_role("link", name="orders", exact=True))
                cells = await row.locator("td").all_inner_texts()
            finally:
                await context.close()
    assert silent == {}
    assert cells[:3] == ["orders", "topic", "1"], "and not unknown"
    assert visit.wrong == []


@contextmanager
def serving(namesrv: str) -> Iterator[str]:
    """A console as an operator starts it, and the line that it prints."""
    words = ["console", "-n", namesrv, "--port", "0"]
    with subprocess.Popen([sys.executable, "-m", "sparrowmq", *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield process.stdout.readline()
        finally:
            process.terminate()
        assert process.wait(30) == 0


async def log_in(visit: Visit, password: str) -> None:
    await visit.page.goto(f"{visit.url}login")
    await visit.page.locator("input[name=name]").fill("admin")
    await visit.page.locator("input[name=password]").fill(password)
    await visit.page.keyboard.press("Enter")
    await visit.page.get_by_role("heading", level=1).wait_for()


async def walk(visit: Visit, msg_id: str) -> dict[str, str]:
    """Open every page; returns those that have nothing to show, and what they say instead."""
    silent = {}
    for each in paths(SimpleNamespace(msg_id=msg_id)):
        path = each.replace("broker-1", "broker-a").replace("ticks", "orders")
        if "/members/" in path:
            continue  # nobody is on line
        await visit.go(path)
        error = visit.page.get_by_text("The console cannot show this page")
        if await error.count():
            silent[path] = await error.locator("..").inner_text()
        if path == "access":
            await visit.sees("Access control is off, or the broker does not report it")
    return silent
