"""A stage (stage.py), and a real Chromium before it, for all tests that look at pages."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, ConsoleMessage, Page, Request, async_playwright

from sparrowmq.client.admin.admin import Admin
from sparrowmq.client.cluster.credentials import Credentials
from tests.console.looks import look, two
from tests.console.stage import KEYS, PASSWORD

__all__ = ["look", "two"]

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


class Stage:
    """The stage's process, and what it told."""

    def __init__(self, told: dict[str, str]) -> None:
        self.namesrv = told["namesrv"]
        self.url = told["url"]
        self.msg_id = told["msg_id"]

    def admin(self) -> Admin:
        return Admin(self.namesrv, credentials=Credentials(*KEYS))


@pytest.fixture(scope="session")
def stage() -> Iterator[Stage]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.console.stage"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"SPARROWMQ_SOURCE": "1"},
    )
    assert process.stdout is not None
    try:
        yield Stage(json.loads(process.stdout.readline()))
    finally:
        process.communicate(timeout=30)
    assert process.returncode == 0


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium() -> AsyncIterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        await browser.close()


class Visit:
    """One visitor's window. What the browser complains about, or would fetch from elsewhere, fails the test."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.wrong: list[str] = []
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("request", self._asked)

    def _said(self, said: ConsoleMessage) -> None:
        if said.type == "error":
            self.wrong.append(said.text)

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((self.url, "data:", "blob:")):
            self.wrong.append(f"asks for {request.url}")

    async def go(self, path: str) -> None:
        """Open a page, and wait until it is alive, and has all that the cluster tells."""
        await self.page.goto(self.url + path.lstrip("/"))
        await self.page.get_by_role("heading", level=1).wait_for()
        await self.page.wait_for_function("window.socket?.connected && window.did_handshake !== false")
        await self.page.locator(".waiting").wait_for(state="detached")

    async def sees(self, *texts: str) -> None:
        for text in texts:
            await self.page.get_by_text(text).first.wait_for()

    async def press(self, name: str) -> None:
        await self.page.get_by_role("button", name=name, exact=True).last.click()

    async def fill(self, label: str, value: str) -> None:
        await self.page.get_by_label(label, exact=True).last.fill(value)


@pytest_asyncio.fixture(loop_scope="session")
async def visit(stage: Stage, chromium: Browser) -> AsyncIterator[Callable[..., Coroutine[Any, Any, Visit]]]:
    """`await visit("boss")`: somebody who has logged in."""
    contexts = []
    visits: list[Visit] = []
    cookies = _cookies(stage)

    async def begin(name: str | None, width: dict[str, int] = WIDE, dark: bool = False) -> Visit:
        context = await chromium.new_context(
            viewport=width,  # type: ignore[arg-type]
            color_scheme="dark" if dark else "light",
        )
        contexts.append(context)
        if name is not None:
            await context.add_cookies([cookies(name)])
        page = await context.new_page()
        page.set_default_timeout(20_000)
        visits.append(Visit(page, stage.url))
        return visits[-1]

    yield begin
    for context in contexts:
        await context.close()
    assert [wrong for each in visits for wrong in each.wrong] == []


def _cookies(stage: Stage) -> Callable[[str], Any]:
    """Logs in over plain HTTP, once for each name in a run."""
    import urllib.parse
    import urllib.request

    kept: dict[str, str] = _KEPT.setdefault(stage.url, {})

    class NoRedirect(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            return None

    def cookie(name: str) -> dict[str, str]:
        if name not in kept:
            form = urllib.parse.urlencode({"name": name, "password": PASSWORD}).encode()
            try:
                urllib.request.build_opener(NoRedirect).open(f"{stage.url}login", form)
            except urllib.error.HTTPError as answer:
                assert answer.code == 303, answer.read()
                kept[name] = answer.headers["set-cookie"].partition(";")[0]
        key, _, value = kept[name].partition("=")
        return {"name": key, "value": value, "url": stage.url}

    return cookie


_KEPT: dict[str, dict[str, str]] = {}
