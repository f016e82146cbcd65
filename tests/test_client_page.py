"""docs/client.md: every piece of code runs as it stands there, inside the connection that the page begins with."""

import ast
import asyncio
import re
from pathlib import Path
from types import CodeType

import pytest

import sparrowmq

PAGE = (Path(__file__).parents[1] / "docs" / "client.md").read_text()
FRAME, *PIECES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
GOES_ON = ("closed()", "serve()")  # until cancelled
HANDLED_S = 10


def compiled(piece: str) -> CodeType:
    code: CodeType = compile(piece, "client.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    return code


def number_and_heading(piece: str) -> str:
    before = PAGE[: PAGE.index(piece)]
    heading = re.findall(r"^#+ (.*)$", before, re.MULTILINE)[-1]
    return f"{PIECES.index(piece) + 1}: {heading}"


async def ready(mq: sparrowmq.Client) -> None:
    """What a reader has at hand: some orders to consume."""
    for tag in ("paid", "refunded"):
        await mq.send("orders", b'{"id": "o-0", "amount": 5}', tag=tag, fifo="customer-7")


def test_the_frame_is_what_the_pieces_stand_in():
    assert FRAME.strip().endswith("...")
    compiled(FRAME)
    assert len(PIECES) > 15


@pytest.mark.parametrize("piece", PIECES, ids=number_and_heading)
async def test_a_piece_runs(piece, rocketmq_server, tmp_path, monkeypatch, request):
    monkeypatch.setattr("sparrowmq.client.consuming.settings.OFFSET_FOLDER", tmp_path)
    billed: asyncio.Queue[object] = asyncio.Queue()
    async with sparrowmq.connect(rocketmq_server.namesrv) as mq:
        await ready(mq)
        names = {"mq": mq, "sparrowmq": sparrowmq, "asyncio": asyncio, "bill": billed.put}
        run = eval(compiled(piece.replace("127.0.0.1:9876", rocketmq_server.namesrv)), names)
        if run is None:  # It awaits nothing.
            return
        running = asyncio.ensure_future(run)
        if any(each in piece for each in GOES_ON):
            handled = asyncio.ensure_future(asyncio.wait_for(billed.get(), HANDLED_S))
            await asyncio.wait([handled, running], return_when=asyncio.FIRST_COMPLETED)
            assert handled.done(), "it ended before anything was handled"
            await handled
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            return
        await asyncio.wait_for(running, HANDLED_S)
        assert "bill(" not in piece or not billed.empty()
