"""The search of the site, in a real browser: 20 questions of new users are answered within two clicks.

A question passes when one of the first two pages that the search lists shows the heading: as its own line, or below
"more on this page", which is the second click.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

playwright = pytest.importorskip("playwright.sync_api")

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
QUESTIONS = {
    "delay a message": "use/client.html#delay-a-message",
    "schedule a message": "use/client.html#schedule-a-message-at-a-time",
    "what does D2 mean": "operate/reliability.html#what-d2-means",
    "no route for topic": "use/errors.html#noroute",
    "reset offsets of a group": "operate/operating.html#reset-offsets-of-a-consumer-group",
    "dead letter queue": "operate/operating.html#handle-dead-letters",
    "retry a failed message": "use/client.html#acknowledge-retry-dead-letter",
    "consumer gets no messages": "use/errors.html#a-consumer-gets-nothing",
    "cannot connect docker brokerIP1": "use/errors.html#brokerunreachable",
    "send in order fifo": "use/client.html#send-in-order",
    "celery": "start/from-celery.html",
    "kafka exactly once": "start/from-aiokafka.html#transactions",
    "sync client": "use/client.html#use-the-client-without-async",
    "pytest fixture": "start/testing.html#fixtures",
    "disk full": "operate/operating.html#the-disk-is-full",
    "SLAVE_NOT_AVAILABLE": "use/errors.html#send-status",
    "access denied": "use/errors.html#accessdenied",
    "message too large": "use/errors.html#messagetoolarge",
    "lag of a group": "operate/operating.html#see-the-lag-of-a-consumer-group",
    "slow requests": "operate/metrics.html#find-slow-requests",
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian: apt install chromium)"),
    pytest.mark.timeout(300),
]


class Silent(SimpleHTTPRequestHandler):
    """Serves files without a line for each request."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> Iterator[str]:
    """The built site, served on this machine."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "-q", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, timeout=200)
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Silent, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def page(address):
    """A page of the site whose search is ready; what it asked of other machines is in `page.elsewhere`."""
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        page = browser.new_page()
        page.elsewhere = []
        page.problems = []
        page.on("request", lambda each: each.url.startswith(address) or page.elsewhere.append(each.url))
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.goto(f"{address}index.html")
        page.locator(".md-search__input").click()
        yield page
        browser.close()


def found(page, query: str) -> list[list[str]]:
    """The links of each page that the search lists, those that a click unfolds included."""
    box = page.locator(".md-search__input")
    box.fill("")
    box.press_sequentially(query)  # the theme listens to keys
    page.wait_for_timeout(700)
    items = page.locator(".md-search-result__item").all()
    links = [[link.get_attribute("href") for link in item.locator("a").all()] for item in items[:2]]
    return [[re.sub(r"\?[^#]*", "", link) for link in each] for each in links]  # without the words to mark


@pytest.mark.parametrize("query", QUESTIONS)
def test_a_question_is_answered_within_two_clicks(page, query):
    pages = found(page, query)
    assert any(QUESTIONS[query] in link for links in pages for link in links), pages


def test_the_site_asks_nothing_of_other_machines_and_has_no_errors(page):
    found(page, "a")
    assert page.elsewhere == [] and page.problems == []
