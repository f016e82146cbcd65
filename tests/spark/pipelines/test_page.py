"""Run docs/use/pipelines.md from its first command to its last, as a reader would."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import click
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from click.testing import CliRunner

from sparrowmq.client import blocking_client as sync
from sparrowmq.spark.commands.pipeline_commands import pipeline
from sparrowmq.testing.background import BackgroundCluster
from tests.environments import python_with, variables
from tests.place import Place
from tests.schemas.fake_registry import FakeRegistry
from tests.schemas.samples import MONEY

PAGE = (Path(__file__).parents[3] / "docs" / "use" / "pipelines.md").read_text(encoding="utf-8")
PIECES = re.findall(r"```(python)?\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [
    shlex.split(line)[2:]
    for kind, piece in PIECES
    for line in piece.splitlines()
    if not kind and line.startswith("sparrowmq pipeline ")
]
QUICK = {"--rounds": "2", "--every": "0.01"}
EXTRAS = ("server", "lake")
# Asks each command of the page for its help, in one process.
HELPS = """
import json, sys
from click.testing import CliRunner
from sparrowmq.cli.main import main
for words in json.load(sys.stdin):
    answer = CliRunner().invoke(main, ["pipeline", *words, "--help"])
    assert answer.exit_code == 0 and answer.output.startswith("Usage: "), answer.output
"""


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_each_command_of_the_page_is_valid(words):
    command = pipeline.commands[words[0]]
    with click.Context(pipeline) as parent:
        command.make_context(words[0], words[1:], parent=parent)


def test_each_pipeline_has_a_section_a_row_and_a_command_on_the_page():
    assert {words[0] for words in COMMANDS} == set(pipeline.commands)
    for name in pipeline.commands:
        assert f"\n## {name}\n" in PAGE
        assert f"| [`{name}`](#{name}) |" in PAGE


def test_help_of_each_command_needs_the_extras_of_the_page_alone():
    assert f'`pip install ".[{",".join(EXTRAS)}]"`' in PAGE.partition("\n## ")[0]
    python = python_with(*EXTRAS)
    done = subprocess.run(
        [python, "-c", HELPS],
        input=json.dumps(COMMANDS),
        env=variables(python),
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_messages_of_the_first_box_are_counted_with_the_extras_of_the_page_alone(tmp_path):
    """`table --format delta` needs the extra `lake`, and `sql` the other."""
    [start, *sends] = next(piece for _, piece in PIECES if "sparrowmq dev " in piece).splitlines()
    query = next(line for line in PAGE.splitlines() if line.startswith("sparrowmq pipeline sql "))
    table = next(line for line in PAGE.splitlines() if "--format delta" in line)
    with ExitStack() as stack:
        place = Place(tmp_path, stack, *EXTRAS)
        place.replaced["/lake"] = str(tmp_path)
        place.start(f"{start.removesuffix(' &')} --port 9876 --json", until='"namesrv"')
        place.shell("\n".join(sends))
        assert re.search(r"\bpaid\b.*\b2\b", place.shell(query))
        report = json.loads(place.shell(table).splitlines()[-1])
    assert report["written"] == 2 and (tmp_path / "orders-json" / "_delta_log").is_dir()


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Mapping[str, str]]:
    """Replacements of the page's addresses and paths: two clusters, and folders here."""
    store = tmp_path / "lib" / "sparrowmq" / "store"
    with (
        BackgroundCluster(tmp_path / "here", commit_log_file_bytes=65536, trace_topic_enabled=True) as here,
        BackgroundCluster(tmp_path / "there") as there,
        FakeRegistry() as registry,
    ):
        store.parent.mkdir(parents=True)
        store.symlink_to(tmp_path / "here" / "broker-0")
        yield {
            "127.0.0.1:9876": here.namesrv, "10.0.0.1:9876": here.namesrv, "10.1.0.1:9876": there.namesrv,
            "/var/lib": str(tmp_path / "lib"), "/backup": str(tmp_path / "backup"),
            "http://registry:8081": registry.url,
            "/lake": str(tmp_path / "lake"), "/archive": str(tmp_path / "archive"), "broker-a": "broker-0",
        }  # fmt: skip


def fill(address: str) -> None:
    """Make what the page assumes; each third order comes twice, with keys of its own."""
    with sync.connect(address, trace=True) as mq, open("ledger.csv", "w") as ledger:
        ledger.write("order_id,amount\n")
        for topic in ("orders", "payments", "%DLQ%billing"):
            mq.admin.create_topic(topic, queues=2, exist_ok=True)
        mq.admin.create_group("billing")
        for number in range(300):
            body = json.dumps({"order": f"o-{number - (number % 3) // 2}", "amount": number, "more": "x" * 200})
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
    """The report of a command; commands without an end get one, and repeated looks do not wait."""
    words = [with_places(word, places) for word in words]
    for option, value in QUICK.items():
        if option in words:
            words[words.index(option) + 1] = value
    if any("--once" in param.opts and not param.secondary_opts for param in pipeline.commands[words[0]].params):
        words.append("--once")
    done = CliRunner().invoke(pipeline, words)
    assert done.exit_code == 0, f"{words}: {done.output}\n{done.exception!r}"
    report: dict = json.loads(done.stdout.splitlines()[-1])
    return report


@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_every_command_and_every_piece_does_what_the_page_says(spark, places, tmp_path, monkeypatch):
    monkeypatch.setattr("sparrowmq.spark.register.session", lambda **_: spark)
    monkeypatch.chdir(tmp_path)
    fill(places["127.0.0.1:9876"])
    Path("order.proto").write_text(MONEY)
    shutil.copytree(places["/var/lib"] + "/sparrowmq/store", places["/backup"] + "/store")
    said = {}
    for kind, piece in PIECES:
        if kind == "python":
            names = {"spark": spark}
            exec(compile(with_places(piece, places), "pipelines.md", "exec"), names)
            assert "rows" not in names or names["rows"].count() == 300
        for line in piece.splitlines():
            if line.startswith("sparrowmq pipeline "):
                said[line] = typed(shlex.split(line)[2:], places)
    counts = [(line.split()[2], report["written"]) for line, report in said.items()]
    wanted = {"mirror": 301, "dedup": 200, "table": 300, "publish": 300, "dlq-replay": 2, "archive": 300}
    assert [(name, count) for name, count in wanted.items() if (name, count) not in counts] == []
    assert min(written for name, written in counts if name == "archive") > 0  # of the files that are full
