"""A stage (stage.py), and a real Chromium before it, for all tests that look at pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

from tests.console.looks import look, two
from tests.console.visiting import CHROMIUM, WIDE, Stage, Visit, cookie_of, staged

__all__ = ["look", "two"]


@pytest.fixture(scope="session")
def stage() -> Iterator[Stage]:
    with staged() as started:
        yield started


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium() -> AsyncIterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="session")
async def visit(stage: Stage, chromium: Browser) -> AsyncIterator[Callable[..., Coroutine[Any, Any, Visit]]]:
    """`await visit("boss")`: somebody who has logged in."""
    contexts = []
    visits: list[Visit] = []

    async def begin(name: str | None, width: dict[str, int] = WIDE, dark: bool = False) -> Visit:
        context = await chromium.new_context(
            viewport=width,  # type: ignore[arg-type]
            color_scheme="dark" if dark else "light",
        )
        contexts.append(context)
        if name is not None:
            await context.add_cookies([cookie_of(stage.url, name)])
        page = await context.new_page()
        page.set_default_timeout(20_000)
        visits.append(Visit(page, stage.url))
        return visits[-1]

    yield begin
    for context in contexts:
        await context.close()
    assert [wrong for each in visits for wrong in each.wrong] == []
