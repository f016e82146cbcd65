"""Wait for what another task does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


async def until(holds: Callable[[], Awaitable[object] | object], limit_s: float = 60.0) -> None:
    """Wait until it holds."""
    async with asyncio.timeout(limit_s):
        while True:
            found = holds()
            if await found if isinstance(found, Awaitable) else found:
                return
            await asyncio.sleep(0.02)
