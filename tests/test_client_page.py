"""docs/use/client.md: every piece of code runs as printed, inside the connection that the page begins with."""

import ast
import asyncio
import json
import re
import subprocess
from dataclasses import fields
from pathlib import Path
from types import CodeType

import pytest

import sparrowmq
from sparrowmq.client.consuming.consumer_settings import (
    ConsumerSettings,
    FlowLimits,
    PullSettings,
    SimpleSettings,
)
from sparrowmq.client.sending.producer_settings import ProducerSettings
from sparrowmq.testing.background import BackgroundCluster
from tests.environments import python_with, variables

PAGE = (Path(__file__).parents[1] / "docs" / "use" / "client.md").read_text()
FRAME, *PIECES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
GOES_ON = ("closed()", "serve()")  # until cancelled
HANDLED_S = 10
# Defaults that are no literal, as the page writes them.
WRITTEN = {
    "flow": ("FlowLimits()", FlowLimits()),
    "offset_folder": ("~/.rocketmq_offsets", Path.home() / ".rocketmq_offsets"),
}
# Arguments that `subscribe` explains, and those of a pull consumer that are as for `subscribe`.
ELSEWHERE = {
    ProducerSettings: set(),
    ConsumerSettings: {"group"},
    PullSettings: {"group", "start", "pull_batch", "strategy", "on_assigned", "on_revoked", "offset_folder"},
    SimpleSettings: {"group"},
}


# Imports what each piece imports, and looks up what each takes from our package.
IMPORTS = """
import ast, json, sys
for piece in json.load(sys.stdin):
    for node in ast.walk(ast.parse(piece)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            exec(ast.unparse(node))
        elif isinstance(node, ast.Attribute) and ast.unparse(node).startswith("sparrowmq."):
            import sparrowmq
            eval(ast.unparse(node))
"""


def compiled(piece: str) -> CodeType:
    code: CodeType = compile(piece, "client.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    return code


def number_and_heading(piece: str) -> str:
    before = PAGE[: PAGE.index(piece)]
    heading = re.findall(r"^#+ (.*)$", before, re.MULTILINE)[-1]
    return f"{PIECES.index(piece) + 1}: {heading}"


@pytest.mark.slow
def test_imports_of_the_pieces_need_the_client_alone():
    python = python_with()
    pieces = [FRAME, *PIECES]
    done = subprocess.run(
        [python, "-c", IMPORTS],
        input=json.dumps(pieces),
        env=variables(python),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


async def ready(mq: sparrowmq.Client) -> None:
    """Send what a reader has at hand: some orders to consume, and a topic and a group to look at."""
    for tag in ("paid", "refunded"):
        await mq.send("orders", b'{"id": "o-0", "amount": 5}', tag=tag, fifo="customer-7")
    await mq.admin.create_topic("invoices", queues=4, exist_ok=True)
    await mq.admin.create_group("archive", exist_ok=True)


def test_page_begins_with_the_connection_around_all_pieces():
    assert FRAME.strip().endswith("...")
    compiled(FRAME)
    assert len(PIECES) > 15


@pytest.fixture(autouse=True)
def offsets_of_broadcast_groups(tmp_path, monkeypatch):
    monkeypatch.setattr("sparrowmq.client.consuming.consumer_settings.OFFSET_FOLDER", tmp_path)


async def follow(piece: str, mq: sparrowmq.Client, namesrv: str) -> None:
    """Run it inside the connection; what goes on until it is cancelled goes on until it has handled something."""
    billed: asyncio.Queue[object] = asyncio.Queue()
    names = {"mq": mq, "sparrowmq": sparrowmq, "asyncio": asyncio, "bill": billed.put}
    run = eval(compiled(piece.replace("127.0.0.1:9876", namesrv)), names)
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


@pytest.mark.parametrize("piece", PIECES, ids=number_and_heading)
async def test_piece_runs(piece, rocketmq_server):
    async with sparrowmq.connect(rocketmq_server.namesrv) as mq:
        await ready(mq)
        await follow(piece, mq, rocketmq_server.namesrv)


async def test_a_reader_runs_all_pieces_one_after_the_other(tmp_path, caplog):
    """On a new broker, so that a piece has what it needs from those before it."""
    with BackgroundCluster(tmp_path / "store", trace_topic_enabled=True, property_filter=True) as cluster:
        for piece in PIECES:
            async with sparrowmq.connect(cluster.namesrv) as mq:
                try:
                    await follow(piece, mq, cluster.namesrv)
                except Exception as error:
                    pytest.fail(f"{number_and_heading(piece)}: {error!r}")
    failed = [record.getMessage() for record in caplog.records if "failed" in record.getMessage()]
    assert failed == []


@pytest.mark.parametrize(
    ("heading", "settings"),
    [
        ("Producer settings", ProducerSettings),
        ("Consumer settings", ConsumerSettings),
        ("Pull consumer settings", PullSettings),
        ("Simple consumer settings", SimpleSettings),
    ],
)
def test_table_of_settings_has_each_setting_with_its_default(heading, settings):
    section = PAGE.partition(f"### {heading}\n")[2].partition("\n#")[0]
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| `([^|]*)` \|", section, re.MULTILINE)
    written = {name: default for names, default in rows for name in re.findall(r"\w+", names)}
    there = {each.name for each in fields(settings)} - ELSEWHERE[settings]
    assert set(written) == there
    given = settings(**dict.fromkeys({"group"} & {each.name for each in fields(settings)}, "billing"))
    for name in there:
        default = getattr(given, name)
        if name in WRITTEN:
            assert (written[name], default) == WRITTEN[name]
        else:
            assert written[name] == repr(default), name
