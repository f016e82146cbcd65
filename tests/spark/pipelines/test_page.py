"""docs/pipelines.md, from its first command to its last, as a reader would do it."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from click.testing import CliRunner

from sparrowmq.client import sync
from sparrowmq.spark.command import pipeline
from sparrowmq.testing.background import BackgroundCluster

PAGE = (Path(__file__).parents[3] / "docs" / "pipelines.md").read_text(encoding="utf-8")
PIECES = re.findall(r"```(python)?\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [
    shlex.split(line)[2:]
    for kind, piece in PIECES
    for line in piece.splitlines()
    if not kind and line.startswith("sparrowmq pipeline ")
]
QUICK = {"--rounds": "2", "--every": "0.01"}


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_a_command_of_the_page_is_one(words):
    command = pipeline.commands[words[0]]
    with click.Context(pipeline) as parent:
        command.make_context(words[0], words[1:], parent=parent)


def test_each_pipeline_is_on_the_page_and_has_a_command_there():
    assert {words[0] for words in COMMANDS} == set(pipeline.commands)
    for name in pipeline.commands:
        assert f"## {name}\n" in PAGE or f"| [`{name}`](spark.md#" in PAGE


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Mapping[str, str]]:
    """What stands for the page's addresses and paths: two clusters, and folders here."""
    store = tmp_path / "lib" / "sparrowmq" / "store"
    with (
        BackgroundCluster(tmp_path / "here", commit_log_file_bytes=65536, trace_topic_enabled=True) as here,
        BackgroundCluster(tmp_path / "there") as there,
    ):
        store.parent.mkdir(parents=True)
        store.symlink_to(tmp_path / "here" / "broker-0")
        yield {
            "127.0.0.1:9876": here.namesrv, "10.0.0.1:9876": here.namesrv, "10.1.0.1:9876": there.namesrv,
            "/var/lib": str(tmp_path / "lib"), "/backup": str(tmp_path / "backup"),
            "/lake": str(tmp_path / "lake"), "/archive": str(tmp_path / "archive"), "broker-a": "broker-0",
        }  # fmt: skip


def fill(address: str) -> None:
    """What the page takes for granted; each third order comes twice, under keys of its own."""
    with sync.connect(address, trace=True) as mq, open("ledger.csv", "w") as ledger:
        ledger.write("order_id,amount\n")
        for topic in ("orders", "payments", "%DLQ%billing"):
            mq.admin.create_topic(topic, queues=2, exist_ok=True)
        mq.admin.create_group("billing")
        for number in range(300):
            body = json.dumps(
                {"order": f"o-{number - (number % 3) // 2}", "amount": number, "more": "x" * 200}
            )
            mq.send("orders", body.encode(), tag="paid", keys=[f"k-{number}"])
            ledger.write(f"k-{number},{number}\n")
        mq.send("payments", b"paid")
        for region in ("eu", "us", "eu"):
            mq.send("%DLQ%billing", b"dead", properties={"region": region})
        mq.admin.reset("billing", "orders", "earliest")


def with_places(text: str, places: Mapping[str, str]) -> str:
    for theirs, ours in places.items():
        text = text.replace(theirs, ours)
    return text


def typed(words: list[str], places: Mapping[str, str]) -> dict:
    """What a command reports; those that would go on for ever end, and those that look again do it at once."""
    words = [with_places(word, places) for word in words]
    for option, value in QUICK.items():
        if option in words:
            words[words.index(option) + 1] = value
    if any(
        "--once" in param.opts and not param.secondary_opts for param in pipeline.commands[words[0]].params
    ):
        words.append("--once")
    done = CliRunner().invoke(pipeline, words)
    assert done.exit_code == 0, f"{words}: {done.output}\n{done.exception!r}"
    report: dict = json.loads(done.stdout.splitlines()[-1])
    return report


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_every_command_and_every_piece_does_what_the_page_says(spark, places, tmp_path, monkeypatch):
    monkeypatch.setattr("sparrowmq.spark.register.session", lambda **_: spark)
    monkeypatch.chdir(tmp_path)
    fill(places["127.0.0.1:9876"])
    shutil.copytree(places["/var/lib"] + "/sparrowmq/store", places["/backup"] + "/store")
    said = {}
    for kind, piece in PIECES:
        if kind == "python":
            names = {"spark": spark}
            exec(compile(with_places(piece, places), "pipelines.md", "exec"), names)
            assert names["rows"].count() == 300
        for line in piece.splitlines():
            if line.startswith("sparrowmq pipeline "):
                said[line] = typed(shlex.split(line)[2:], places)
    counts = [(line.split()[2], report["written"]) for line, report in said.items()]
    wanted = {"mirror": 301, "dedup": 200, "table": 300, "publish": 300, "dlq-replay": 2, "archive": 300}
    assert [(name, count) for name, count in wanted.items() if (name, count) not in counts] == []
    assert min(written for name, written in counts if name == "archive") > 0  # of the files that are full
