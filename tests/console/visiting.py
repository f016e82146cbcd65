"""The stage as a process (stage.py), and visitors who look at its pages in a real Chromium."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import ConsoleMessage, Error, Page, Request

from sparrowmq.admin.admin import Admin
from sparrowmq.client.cluster.credentials import Credentials
from tests.console.stage import KEYS, PASSWORD

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


@contextmanager
def staged() -> Iterator[Stage]:
    """The stage, while it runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.console.stage"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    try:
        yield Stage(json.loads(process.stdout.readline()))
    finally:
        process.communicate(timeout=30)
    assert process.returncode == 0


class Visit:
    """One visitor's window. What the browser complains about, or would fetch from elsewhere, fails the test."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.wrong: list[str] = []
        self._heard = {"console": self._said, "pageerror": self._erred, "request": self._asked}
        for event, hear in self._heard.items():
            page.on(event, hear)  # type: ignore[call-overload]

    async def leave(self) -> None:
        """Leave an empty window to the next visit."""
        await self.page.goto("about:blank")
        for page in self.page.context.pages:
            if page is not self.page:
                await page.close()
        for event, hear in self._heard.items():
            self.page.remove_listener(event, hear)

    def _erred(self, error: Error) -> None:
        self.wrong.append(str(error))

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

    async def misses(self, *words: str) -> None:
        """See the page about something that does not exist. The browser reports its status."""
        await self.sees("Not found", *words)
        assert ["404" in each for each in self.wrong] == [True]
        self.wrong.clear()

    async def sees(self, *texts: str) -> None:
        for text in texts:
            await self.page.get_by_text(text).first.wait_for()

    async def press(self, name: str) -> None:
        await self.page.get_by_role("button", name=name, exact=True).last.click()

    async def fill(self, label: str, value: str) -> None:
        await self.page.get_by_label(label, exact=True).last.fill(value)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def cookie_of(url: str, name: str) -> Any:
    """The cookie of a visitor who logs in, over plain HTTP; once for each name in a run."""
    if (url, name) not in _COOKIES:
        form = urllib.parse.urlencode({"name": name, "password": PASSWORD}).encode()
        try:
            urllib.request.build_opener(_NoRedirect).open(f"{url}login", form)
        except urllib.error.HTTPError as answer:
            with answer:
                assert answer.code == 303, answer.read()
                _COOKIES[url, name] = answer.headers["set-cookie"].partition(";")[0]
    key, _, value = _COOKIES[url, name].partition("=")
    return {"name": key, "value": value, "url": url}


_COOKIES: dict[tuple[str, str], str] = {}
