"""How long do the console's pages take in a cluster of 10,000 topics?

    ./run bench crowd [--topics 10000] [--groups 2000] [--pictures FOLDER] [--quick]

One broker, and the console beside it, each a process; every group has its retry topic, every fourth group is behind,
every tenth has dead letters. A real Chromium opens each page, 1440 and 390 wide; scripts and styles are in its cache,
as for anybody who comes the second time. Then a page with a tick is left open by itself, and all pages are at once.

    usable       the page is connected, and has all that the cluster tells
    kB           of the page as it is then

Bound, by hand: the table of 12,200 topics is 1.9 MB of JSON, 20 ms to make and 10 to read; fifty rows are 15 kB. What
is left is the browser's: 0.3 s to run NiceGUI's scripts.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Final

from playwright.sync_api import Page, sync_playwright

from bench.rounds import Run, arguments
from bench.servers import Peer, serving
from bench.usage import cpu_s, memory
from tests.interop.apache import free_ports
from tests.interop.child import Child, scratch
from tests.interop.wire import SEND, Wire, request, send_fields

_UPDATE_CONSUMER_OFFSET: Final = 15
_UPDATE_AND_CREATE_TOPIC: Final = 17
_UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Final = 200
_PASSWORD: Final = "a long password"
_WIDTHS: Final = (1440, 390)
_PAGES: Final = (
    "", "cluster", "cluster/broker-a", "topics", "topics/topic-00007", "groups", "groups/group-0004",
    "producers", "messages?topic=topic-00007", "tail?topic=topic-00007", "trace", "dlq", "dlq?group=group-0010",
    "access", "servers", "search?q=00",
)  # fmt: skip
_TICKING: Final = (
    "",
    "cluster",
    "topics/topic-00007",
    "groups",
    "groups/group-0004",
    "producers",
)
_USABLE: Final = """() => window.socket?.connected && window.did_handshake !== false
    && document.querySelector('[aria-level="1"]') && !document.querySelector('.waiting')"""


NewPage = Callable[[int], Page]


class _Console(Child):
    def __init__(self, namesrv: str) -> None:
        self.port = free_ports(1)[0]
        command = [str(Path(sys.executable).parent / "sparrowmq"), "console", "-n", namesrv]
        super().__init__(
            scratch("bench-console"),
            [*command, "--port", str(self.port), "--user", "boss:admin"],
            SPARROWMQ_CONSOLE_PASSWORD=_PASSWORD,
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def _wait_ready(self) -> None:
        self.wait_for("the console is at")


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.set_defaults(rounds=3, seconds=30)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=2_000)
    parser.add_argument("--pictures", type=Path, help="a folder for a picture of each page")
    run = Run("crowd", __doc__, parser)
    options = run.options
    with serving("ours") as peer:
        begun = time.monotonic()
        fill(peer, options.topics, options.groups)
        print(f"filled in {time.monotonic() - begun:.1f} s", flush=True)
        with _Console(peer.namesrv) as console, browsing() as new_page:
            text = _pages(run, peer, console, new_page)
            text += "\n\n" + _open(run, peer, console, new_page)
    run.keep_text(text)


def fill(peer: Peer, topics: int, groups: int) -> None:
    """Topics, a message in each hundredth, and groups of which some are behind and some have dead letters."""
    with Wire(peer.port, timeout_s=60) as wire:
        _each(wire, _UPDATE_AND_CREATE_TOPIC, (_topic(f"topic-{at:05}", 4) for at in range(topics)))
        _each(wire, _UPDATE_AND_CREATE_TOPIC, (_topic(f"%RETRY%group-{at:04}", 1) for at in range(groups)))
        _each(wire, _UPDATE_AND_CREATE_TOPIC, (_topic(f"%DLQ%group-{at:04}", 1) for at in range(0, groups, 10)))
        _each(wire, _UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, (_group(f"group-{at:04}") for at in range(groups)))
        some = [f"topic-{at:05}" for at in range(7, topics, 100)]
        _each(wire, SEND, ((send_fields(name), b"x" * 128) for name in some * 4))
        given_up = [f"%DLQ%group-{at:04}" for at in range(0, groups, 10)]
        _each(wire, SEND, ((send_fields(name), b"given up") for name in given_up))
        _each(wire, _UPDATE_CONSUMER_OFFSET, (_offset(at, topics) for at in range(0, groups, 4)))


def _topic(name: str, queues: int) -> tuple[dict[str, object], bytes]:
    fields = {
        "topic": name,
        "defaultTopic": "TBW102",
        "readQueueNums": queues,
        "writeQueueNums": queues,
        "perm": 6,
    }
    return fields | {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}, b""


def _group(name: str) -> tuple[dict[str, object], bytes]:
    return {}, json.dumps({"groupName": name}).encode()


def _offset(group: int, topics: int) -> tuple[dict[str, object], bytes]:
    topic = f"topic-{7 + group * 100 % topics:05}"
    return {"consumerGroup": f"group-{group:04}", "topic": topic, "queueId": 0, "commitOffset": 1}, b""


def _each(wire: Wire, code: int, asked: Iterable[tuple[dict[str, object], bytes]]) -> None:
    """Put questions, two hundred at a time: what topics change at once costs a broker one look at its table."""
    left = iter(asked)
    while chunk := [request(code, fields, body) for fields, body in islice(left, 200)]:
        wire.send(b"".join(frame for frame, _ in chunk))
        for _ in chunk:
            if (reply := wire.receive()).code:
                raise RuntimeError(f"{code}: {reply.code} {reply.remark}")


@contextmanager
def browsing() -> Iterator[NewPage]:
    """Makes windows of a Chromium, `width` pixels wide, that keep what they fetched."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        raise SystemExit("needs Chromium (Debian: apt install chromium)")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(folder, executable_path=program, args=["--no-sandbox"])

        def new_page(width: int) -> Page:
            page = context.new_page()
            page.set_viewport_size({"width": width, "height": 900})
            page.set_default_timeout(60_000)
            return page

        yield new_page
        context.close()


def _pages(run: Run, peer: Peer, console: _Console, new_page: NewPage) -> str:
    """How long each page takes, at both widths: medians."""
    page = new_page(_WIDTHS[0])
    page.goto(console.url)
    page.get_by_label("User").fill("boss")
    page.get_by_label("Password").fill(_PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_function(_USABLE)
    rows = [
        "| page | usable after s | 390 wide | kB |",
        "| --- | --- | --- | --- |",
    ]
    for path in _PAGES:
        seen = {width: [visit(page, console.url + path, width) for _ in range(run.options.rounds)] for width in _WIDTHS}
        if run.options.pictures:
            for width in _WIDTHS:
                page.set_viewport_size({"width": width, "height": 900})
                page.wait_for_timeout(1500)
                name = (path or "overview").replace("/", "-").replace("?", "-")
                page.screenshot(path=run.options.pictures / f"{name}-{width}.png")
        wide, narrow = (sorted(seen[width]) for width in _WIDTHS)
        middle = run.options.rounds // 2
        row = f"| /{path} | {wide[middle][0]:.2f} ({wide[0][0]:.2f}..{wide[-1][0]:.2f}) "
        rows.append(row + f"| {narrow[middle][0]:.2f} | {wide[0][1] / 1000:,.0f} |")
        print(rows[-1], flush=True)
    typed = [
        f"{name} {_typed(page, console.url + path):.2f} s"
        for name, path in (("topics", "topics"), ("groups", "groups"))
    ]
    page.close()
    return (
        "\n".join(rows)
        + f"\n\nFrom the last key in a filter to what fits: {', '.join(typed)} (0.25 s of it waits for more keys)."
    )


def visit(page: Page, url: str, width: int) -> tuple[float, int]:
    """Seconds until a page is usable, and the bytes of it."""
    page.set_viewport_size({"width": width, "height": 900})
    begun = time.monotonic()
    page.goto(url, wait_until="commit")
    page.wait_for_function(_USABLE)
    usable = time.monotonic() - begun
    size = page.evaluate("() => document.documentElement.outerHTML.length")
    return usable, size


def _typed(page: Page, url: str) -> float:
    page.goto(url)
    page.wait_for_function(_USABLE)
    shown = page.locator("tbody tr")
    had = shown.first.inner_text()
    page.get_by_label("Filter", exact=True).fill("0123")
    begun = time.monotonic()
    page.wait_for_function("had => document.querySelector('tbody tr')?.innerText !== had", arg=had)
    return time.monotonic() - begun


def _open(run: Run, peer: Peer, console: _Console, new_page: NewPage) -> str:
    """What pages cost that are left open."""
    seconds = run.options.seconds
    rows = ["| left open | console, ms of CPU a second | broker |", "| --- | --- | --- |"]

    def watched(name: str, paths: Sequence[str]) -> None:
        pages = [new_page(_WIDTHS[0]) for _ in paths]
        for page, path in zip(pages, paths, strict=True):
            page.goto(console.url + path)
            page.wait_for_function(_USABLE)
        had = cpu_s(console.pid), cpu_s(peer.pid)
        time.sleep(seconds)
        used = cpu_s(console.pid) - had[0], cpu_s(peer.pid) - had[1]
        rows.append(f"| {name} | {used[0] / seconds * 1000:.0f} | {used[1] / seconds * 1000:.0f} |")
        print(rows[-1], flush=True)
        for page in pages:
            page.close()

    watched("nothing", ())
    for path in _TICKING if not run.options.quick else ():
        watched(f"/{path}", (path,))
    watched("all pages", _PAGES)
    held = f"console {memory(console.pid).anonymous:.0f} MiB, broker {memory(peer.pid).anonymous:.0f} MiB"
    return "\n".join(rows) + f"\n\n{seconds} s each. Memory at the end, anonymous: {held}."


if __name__ == "__main__":
    main()
