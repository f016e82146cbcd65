"""A stage (stage.py), and a real Chromium before it, for all tests that look at pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright

from tests.console.looks import look, two
from tests.console.visiting import CHROMIUM, WIDE, Stage, Visit, cookie_of, staged

__all__ = ["look", "two"]


@pytest.fixture(scope="package")
def stage() -> Iterator[Stage]:
    with staged() as started:
        yield started


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def chromium() -> AsyncIterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        await browser.close()


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def windows() -> AsyncIterator[dict[object, Page]]:
    """A window for each visitor, used by one test after the other: a new one costs a second of CPU time."""
    kept: dict[object, Page] = {}
    yield kept
    for page in kept.values():
        await page.context.close()


@pytest_asyncio.fixture(loop_scope="session")
async def visit(
    stage: Stage, chromium: Browser, windows: dict[object, Page]
) -> AsyncIterator[Callable[..., Coroutine[Any, Any, Visit]]]:
    """`await visit("boss")`: the window of a visitor who has logged in; `visit(None)`: a new visitor."""
    visits: dict[object, Visit] = {}

    async def begin(name: str | None, width: dict[str, int] = WIDE, dark: bool = False) -> Visit:
        visitor = name or object()
        assert visitor not in visits, f"{name} has one window"
        if visitor not in windows:
            context = await chromium.new_context()
            if name is not None:
                await context.add_cookies([cookie_of(stage.url, name)])
            windows[visitor] = await context.new_page()
        page = windows[visitor]
        page.set_default_timeout(20_000)
        await page.set_viewport_size(width)  # type: ignore[arg-type]
        await page.emulate_media(color_scheme="dark" if dark else "light")
        visits[visitor] = Visit(page, stage.url)
        return visits[visitor]

    yield begin
    for each in visits.values():
        await each.leave()
    assert [wrong for each in visits.values() for wrong in each.wrong] == []
