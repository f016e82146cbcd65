"""Takes a picture of every page of the console: 1280 and 390 pixels wide, light and dark.

    python -m tests.console.screenshots build/screenshots            # every page
    python -m tests.console.screenshots build/screenshots topics     # the pages whose address contains a word
    python -m tests.console.screenshots --docs                       # renew docs/operate/images

It needs Chromium. The pages show the stage of the tests (stage.py).
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from playwright.async_api import Browser, Error, async_playwright

from tests.console.test_walk import paths
from tests.console.visiting import CHROMIUM, PHONE, ROOT, WIDE, Stage, Visit, cookie_of, staged

MISSING = ("topics/none", "messages")
DOCS = ROOT / "docs" / "operate" / "images"
# Of each picture of the documentation: the page, the width, and whether it is dark.
SHOWN = {
    "console-overview": ("", WIDE, False),
    "console-topics": ("topics?sort=Messages&order=down", WIDE, False),
    "console-group": ("groups/billing", WIDE, True),
    "console-tail": ("tail?topic=ticks", PHONE, True),
}
_SETTLE_MS = 1500  # charts are drawn after the page


async def take(browser: Browser, stage: Stage, shots: Sequence[tuple[Path, str, dict[str, int], bool]]) -> None:
    """Take pictures: of each the file, the page, the size of the window, and whether it is dark."""
    for file, path, size, dark in shots:
        context = await browser.new_context(
            viewport=size,  # type: ignore[arg-type]
            color_scheme="dark" if dark else "light",
        )
        await context.add_cookies([cookie_of(stage.url, "boss")])
        visit = Visit(await context.new_page(), stage.url)
        try:
            await visit.go(path)
            await visit.page.wait_for_timeout(_SETTLE_MS)
            await visit.page.screenshot(path=file, full_page=file.parent != DOCS)
        except Error as error:
            print(f"no picture of {path}: {error}", file=sys.stderr)
        await context.close()


def name_of(path: str, stage: Stage) -> str:
    """The page as a part of a file's name."""
    plain = path.replace(stage.msg_id, "id").partition("%3C")[0]
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-") or "overview"


async def main(given: Sequence[str]) -> int:
    if not given or CHROMIUM is None:
        print(__doc__, file=sys.stderr)
        return 2
    with staged() as stage:
        if given[0] == "--docs":
            shots = [(DOCS / f"{name}.png", *each) for name, each in SHOWN.items()]
        else:
            folder = Path(given[0])  # Playwright makes it
            words = given[1:] or [""]
            wanted = [each for each in [*paths(stage), *MISSING] if any(word in each for word in words)]
            shots = [
                (
                    folder / f"{name_of(path, stage)}-{size['width']}-{'dark' if dark else 'light'}.png",
                    path,
                    size,
                    dark,
                )
                for path in wanted
                for size in (WIDE, PHONE)
                for dark in (False, True)
            ]
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            await take(browser, stage, shots)
            await browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
