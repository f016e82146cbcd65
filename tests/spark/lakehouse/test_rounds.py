"""sparrowmq.spark.lakehouse.lake_loop: each message of many topics becomes one row, whatever fails on the way."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from functools import partial

import pytest

pytest.importorskip("pyspark")

import pyarrow.parquet as pq

from sparrowmq import sync
from sparrowmq.spark.lakehouse import lake_progress
from sparrowmq.spark.lakehouse.batch_parts import PartResult
from sparrowmq.spark.lakehouse.lake_status import html, state_of_table, status
from sparrowmq.spark.lakehouse.lake_table import LakeTable
from sparrowmq.spark.pipelines import redrive
from sparrowmq.spark.pipelines.lake.lake import TableLocation, open_lake
from sparrowmq.spark.pipelines.lake.parquet import ParquetFolder
from sparrowmq.spark.pipelines.lake.staged_files import StagedFile
from sparrowmq.spark.pipelines.running.folders import replace_file
from sparrowmq.testing.background import BackgroundCluster
from tests.crash.not_here import skipped_without
from tests.crash.small_disk import SmallDisk
from tests.interop.servers import OurBroker, topic_fields
from tests.interop.wire import Wire
from tests.spark.lakehouse.lakes import PlainWorkers, place, rows_of, running, send, settings

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory):
    with BackgroundCluster(tmp_path_factory.mktemp("broker")) as cluster:
        yield cluster.namesrv


@pytest.fixture
def name(request):
    """Begins the names of the test's own topics."""
    return f"t{abs(hash(request.node.name))}-"


def numbers(count, begin=0):
    return [b'{"id":%d,"name":"n%d"}' % (at, at) for at in range(begin, begin + count)]


def until(rounds, is_so):
    """Do rounds until something is so, for a while: brokers and name servers run beside them."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        rounds.run_round()
        if is_so():
            return
        time.sleep(0.02)
    raise AssertionError({topic: table.error for topic, table in rounds.tables.items()})


def has_all(rounds, *topics):
    return lambda: all(topic in rounds.tables and rounds.tables[topic].is_complete for topic in topics)


def test_topics_become_tables_with_each_message_once_and_the_others_among_the_rejects(namesrv, name, tmp_path):
    bad = [b"no json", b"[1]"]
    send(namesrv, {f"{name}raw": numbers(30), f"{name}json": [*numbers(30), *bad]})
    tables = {f"{name}json": {"mode": "json"}, f"{name}.*": {}}
    with running(settings(namesrv, tmp_path, tables)) as rounds:
        until(rounds, has_all(rounds, f"{name}raw", f"{name}json"))
        figures = rounds.tables[f"{name}json"].figures
        assert (figures.read, figures.rows, figures.errors, figures.lost) == (32, 30, 2, 0)
    assert sorted(row["body"] for row in rows_of(tmp_path / f"{name}raw")) == sorted(numbers(30))
    rows = rows_of(tmp_path / f"{name}json")
    assert sorted((row["id"], row["name"]) for row in rows) == [(at, f"n{at}") for at in range(30)]
    errors = rows_of(tmp_path / f"{name}json.errors")
    assert sorted((row["body"], row["reason"]) for row in errors) == [
        (b"[1]", "the body is JSON, but no object"), (b"no json", "the body is not JSON"),
    ]  # fmt: skip
    assert len({place(row) for row in rows + errors}) == 32


def test_a_new_topic_is_found_a_deleted_one_is_said_and_fields_become_columns(namesrv, name, tmp_path):
    said: list[str] = []
    send(namesrv, {f"{name}a": [b'{"id":1}']})
    with running(settings(namesrv, tmp_path, {f"{name}.*": {"mode": "json"}}), say=said.append) as rounds:
        until(rounds, has_all(rounds, f"{name}a"))
        send(namesrv, {f"{name}a": [b'{"id":2,"extra":1.5}'], f"{name}b": [b'{"x":true}']})
        until(rounds, has_all(rounds, f"{name}a", f"{name}b"))
        until(rounds, lambda: len(rows_of(tmp_path / f"{name}a")) == 2)
        with sync.admin(namesrv) as admin:
            admin.delete_topic(f"{name}b")
        until(rounds, lambda: rounds.tables[f"{name}b"].is_deleted)
        assert state_of_table(rounds.tables[f"{name}b"]) == "deleted"
    assert f"{name}b: was deleted; its table stays" in said
    found = {row["id"]: row.get("extra") for row in rows_of(tmp_path / f"{name}a")}
    assert found == {1: None, 2: 1.5}
    assert [row["x"] for row in rows_of(tmp_path / f"{name}b")] == [True]


def test_a_table_is_kept_only_if_its_queues_were_looked_at(namesrv, name, tmp_path):
    """The page of a lake that had just started said of each table that it has all messages."""
    topic = f"{name}a"
    send(namesrv, {topic: numbers(3)})
    for sent, state in ((3, "behind"), (0, "kept")):
        with running(settings(namesrv, tmp_path, {topic: {}})) as rounds:
            rounds._find_topics()
            table = rounds.tables[topic]
            rounds._begin(table)
            assert table.is_begun and state_of_table(table) == "new"
            rounds._find_ends()
            assert (table.lag, state_of_table(table)) == (sent, state)
            until(rounds, has_all(rounds, topic))
            assert state_of_table(table) == "kept"


def test_a_topic_whose_broker_is_away_was_not_deleted(namesrv, name, tmp_path):
    topic = f"{name}a"
    broker = partial(OurBroker, namesrv, tmp_path / "store", {"brokerName": "away", "brokerClusterName": "c"})
    with running(settings(namesrv, tmp_path, {f"{name}.*": {}})) as rounds:
        with broker() as first:
            with Wire(first.port) as wire:
                assert wire.ask(17, topic_fields(topic)).code == 0
            send(namesrv, {topic: numbers(3)})
            until(rounds, has_all(rounds, topic))
        until(rounds, lambda: topic not in rounds.network.topics())
        rounds.run_round()
        assert state_of_table(rounds.tables[topic]) == "kept"
        with broker(first.port):
            send(namesrv, {topic: numbers(2, 3)})
            until(rounds, lambda: len(rows_of(tmp_path / topic)) == 5)


def test_a_topic_that_was_made_again_is_said_once_and_not_at_each_look(tmp_path):
    said: list[str] = []
    with (
        BackgroundCluster(tmp_path / "store") as cluster,
        running(settings(cluster.namesrv, tmp_path, {"a": {}}), say=said.append) as rounds,
        sync.admin(cluster.namesrv) as admin,
    ):
        send(cluster.namesrv, {"a": numbers(4)})
        until(rounds, has_all(rounds, "a"))
        admin.delete_topic("a")
        admin.create_topic("a")
        until(rounds, lambda: rounds.tables["a"].has_failed)
        for _ in range(5):
            rounds.run_round()
        assert sum("was deleted and made again" in line for line in said) == 1
        assert rounds.tables["a"].figures.failures == 1


def test_a_batch_whose_commit_was_removed_does_not_come_twice(namesrv, name, tmp_path):
    topic = f"{name}a"
    for begin in (0, 5):
        send(namesrv, {topic: numbers(5, begin)})
        with running(settings(namesrv, tmp_path, {f"{name}.*": {}})) as rounds:
            until(rounds, has_all(rounds, topic))
    max((tmp_path / topic).glob(".sparrowmq/[0-9]*.json")).unlink()
    with running(settings(namesrv, tmp_path, {f"{name}.*": {}})) as rounds:
        until(rounds, lambda: topic in rounds.tables and rounds.tables[topic].is_permanent)
        assert "the table has no commit of it" in rounds.tables[topic].error
    assert len(rows_of(tmp_path / topic)) == 10


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_damaged_files_of_a_table_end_in_a_sentence_or_change_nothing(namesrv, name, tmp_path, kind):
    topic, root = f"{name}a", tmp_path / "t"
    found = settings(namesrv, root, {f"{name}.*": {"format": kind, "mode": "json"}})
    send(namesrv, {topic: [b"no json", *numbers(5)]})
    with running(found) as rounds:
        until(rounds, has_all(rounds, topic))
    log = {"parquet": ".sparrowmq/[0-9]*.json", "delta": "_delta_log/*.json", "iceberg": "metadata/*.json"}[kind]
    state, errors = root / f"{topic}.state", root / f"{topic}.errors"
    shutil.copytree(root, tmp_path / "copy")
    for damaged, content, why in (
        (state / "lake.done", b"\xff", ""),
        (max(errors.glob(log)), b"", "restore"),
        (max((root / topic).glob(log)), b"[]", "restore"),
        (max((root / topic).glob(log)), b"\xff", "restore"),
    ):
        damaged.write_bytes(content)
        with running(found) as rounds:
            until(rounds, lambda why=why: topic in rounds.tables and (why or has_all(rounds, topic)()))
            until(rounds, lambda: rounds.tables[topic].is_begun or rounds.tables[topic].has_failed)
            assert re.search(why, rounds.tables[topic].error), (damaged, rounds.tables[topic].error)
            assert rounds.tables[topic].is_permanent is bool(why), damaged
        shutil.rmtree(root)
        shutil.copytree(tmp_path / "copy", root)


def test_columns_get_wider_and_nested_and_no_message_is_a_reject(namesrv, name, tmp_path):
    topic = f"{name}a"
    batches = [
        [b'{"amount":5}'],
        [b'{"amount":5.5,"place":{"x":1}}', b'{"amount":7}'],
        [b'{"amount":"many","place":{"y":[1,2]}}', b'{"amount":9007199254740993}'],
    ]
    count, tables = 0, {f"{name}.*": {"mode": "json", "type_changes": "any"}}
    with running(settings(namesrv, tmp_path, tables)) as rounds:
        for bodies in batches:
            send(namesrv, {topic: bodies})
            count += len(bodies)
            until(
                rounds,
                lambda count=count: topic in rounds.tables and rounds.tables[topic].figures.read == count,
            )
        assert rounds.tables[topic].figures.errors == 0
    found = sorted(row["amount"] for row in rows_of(tmp_path / topic))
    assert [value for value in found if value not in ("5.0", "7.0", "5", "7")] == [
        "5.5",
        "9007199254740993",
        "many",
    ]
    places = [row["place"] for row in rows_of(tmp_path / topic) if row.get("place")]
    assert [(place.get("x"), place.get("y")) for place in places if place.get("x")] == [(1, None)]
    assert [1, 2] in [place.get("y") for place in places]


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_one_sender_makes_no_column_of_numbers_one_of_text(namesrv, name, tmp_path, kind):
    topic, poison = f"{name}{kind}", [b'{"id":"poison"}', b'{"id":%s}' % (b"9" * 44)]
    root = tmp_path / topic
    tables = {topic: {"mode": "json", "format": kind}}

    def ids():
        place = TableLocation(root, tmp_path / f"{topic}.state", "", is_read_only=True)
        files = [pq.ParquetFile(file) for file in open_lake(kind, place).paths()]
        return [value for file in files for value in file.read().column("id").to_pylist()]

    send(namesrv, {topic: numbers(5)})
    with running(settings(namesrv, tmp_path, tables)) as rounds:
        until(rounds, has_all(rounds, topic))
        files = set(root.rglob("*.parquet"))
        send(namesrv, {topic: [*poison, *numbers(1, 5)]})
        until(rounds, lambda: rounds.tables[topic].figures.read == 8)
        (row,) = status(rounds)["tables"]
        assert (row["rows"], row["rejects"], row["state"]) == (6, 2, "kept")
    assert sorted(ids()) == list(range(6)) and files <= set(root.rglob("*.parquet"))
    tables[topic]["type_changes"] = "any"
    with running(settings(namesrv, tmp_path, tables)) as rounds:
        until(rounds, has_all(rounds, topic))
    report = redrive(root)
    assert (report.written, report.errors) == (2, 0)
    assert sorted(ids()) == ["0", "1", "2", "3", "4", "5", "9" * 44, "poison"]


@pytest.mark.parametrize("dies", ["before the rows", "before the rejects", "before it is noted"])
def test_a_batch_that_was_not_done_is_done_again_with_the_same_messages(namesrv, name, tmp_path, monkeypatch, dies):
    topic = f"{name}a"
    send(namesrv, {topic: [*numbers(20), b"bad"]})
    found = settings(namesrv, tmp_path, {f"{name}.*": {"mode": "json"}})
    commits = []

    def commit(self, batch, staged, *given, _commit=ParquetFolder.commit, **named):
        place = 1 if self._location.path.name.endswith(".errors") else 0
        commits.append(place)
        if (dies, place) in (("before the rows", 0), ("before the rejects", 1)):
            raise KeyboardInterrupt
        _commit(self, batch, staged, *given, **named)

    def replace(path, text, **named):
        if dies == "before it is noted" and path.name == "lake.done":
            raise KeyboardInterrupt
        replace_file(path, text, **named)

    with monkeypatch.context() as patch:
        patch.setattr(ParquetFolder, "commit", commit)
        patch.setattr(lake_progress, "replace_file", replace)
        with running(found) as rounds:
            until(rounds, lambda: rounds.tables.get(topic) is not None and rounds.tables[topic].has_failed)
            assert not rounds.tables[topic].is_complete
    send(namesrv, {topic: numbers(20, 20)})
    with running(found) as rounds:
        until(rounds, lambda: has_all(rounds, topic)() and len(rows_of(tmp_path / topic)) >= 40)
    assert sorted(row["id"] for row in rows_of(tmp_path / topic)) == list(range(40))
    assert [row["body"] for row in rows_of(tmp_path / f"{topic}.errors")] == [b"bad"]
    assert commits


def test_a_table_that_fails_waits_and_the_others_go_on(namesrv, name, tmp_path):
    said: list[str] = []
    send(namesrv, {f"{name}a": numbers(5), f"{name}b": numbers(5)})
    (tmp_path / f"{name}a").write_text("a file in the place of the folder")
    with running(settings(namesrv, tmp_path, {f"{name}.*": {}}), say=said.append) as rounds:
        until(rounds, lambda: has_all(rounds, f"{name}b")() and rounds.tables[f"{name}a"].has_failed)
        failed = rounds.tables[f"{name}a"]
        assert state_of_table(failed) == "failing" and not failed.is_due()
        assert any(line.startswith(f"{name}a: failed: ") for line in said)
        (tmp_path / f"{name}a").unlink()
        until(rounds, has_all(rounds, f"{name}a"))
        assert failed.figures.failures >= 1 and not failed.error
    assert len(rows_of(tmp_path / f"{name}a")) == 5 and len(rows_of(tmp_path / f"{name}b")) == 5


def test_the_reason_of_a_failed_table_names_its_cause(namesrv, name, tmp_path):
    topic, said = f"{name}a", list[str]()
    send(namesrv, {topic: numbers(1)})
    (tmp_path / topic).mkdir()
    log = tmp_path / topic / "_delta_log"
    log.write_text("a file in the place of the log")
    with running(settings(namesrv, tmp_path, {topic: {"format": "delta"}}), say=said.append) as rounds:
        until(rounds, lambda: topic in rounds.tables and rounds.tables[topic].error)
        why = rounds.tables[topic].error
        assert re.fullmatch(rf"OSError: Generic LocalFileSystem error: .*{log}.*: Not a directory \(os error 20\)", why)
        assert why in html(status(rounds)) and any(why in line for line in said)


@pytest.mark.parametrize("fails", ["another part", "again"])
def test_files_behind_an_address_that_no_commit_gets_are_removed_at_once(namesrv, name, tmp_path, monkeypatch, fails):
    uploaded: list[StagedFile] = []

    class OneFails(PlainWorkers):
        def __call__(self, parts):
            done = super().__call__(parts)
            uploaded.extend(file for each in done for file in [*each.rows, *each.errors])
            bad = [PartResult(part.topic, error="builtins.OSError: away") for part in parts[:1]]
            return done + bad if fails == "another part" else done

    def again(*_given):
        raise OSError("the registry is away")

    if fails == "again":
        monkeypatch.setattr(LakeTable, "parts_to_repeat", again)
    topic = f"{name}{fails.split()[0]}"
    send(namesrv, {topic: [*numbers(5), b"no json"]})
    tables = {topic: {"to": f"file://{tmp_path}/{{topic}}", "state": f"{tmp_path}/state/{{topic}}"}}
    tables[topic] |= {"mode": "schema", "schema": "id bigint"}
    with running(settings(namesrv, tmp_path, tables), OneFails()) as rounds:
        until(rounds, lambda: topic in rounds.tables and rounds.tables[topic].has_failed)
        assert "away" in rounds.tables[topic].error
        assert uploaded and not list(tmp_path.rglob("*.parquet"))


def test_a_batch_whose_bodies_add_columns_each_time_is_not_added(namesrv, name, tmp_path, monkeypatch):
    """The files of the last time are gone already, as another time was to follow."""
    send(namesrv, {f"{name}a": numbers(5)})
    workers = PlainWorkers()
    monkeypatch.setattr(LakeTable, "parts_to_repeat", lambda table, _written: table._parts)
    with running(settings(namesrv, tmp_path, {f"{name}a": {}}), workers) as rounds:
        until(rounds, lambda: workers.done)
        assert "its bodies add columns each time" in rounds.tables[f"{name}a"].error
    assert rows_of(tmp_path / f"{name}a") == []


def test_a_table_of_other_settings_waits_for_somebody(namesrv, name, tmp_path):
    send(namesrv, {f"{name}a": numbers(2)})
    with running(settings(namesrv, tmp_path, {f"{name}.*": {}})) as rounds:
        until(rounds, has_all(rounds, f"{name}a"))
    with running(settings(namesrv, tmp_path, {f"{name}.*": {"mode": "json"}})) as rounds:
        until(rounds, lambda: f"{name}a" in rounds.tables and rounds.tables[f"{name}a"].has_failed)
        table = rounds.tables[f"{name}a"]
        assert state_of_table(table) == "waiting" and "was begun with mode 'raw', not 'json'" in table.error


def test_the_lag_of_a_table_that_fails_is_all_that_it_lacks_and_its_age_grows(namesrv, name, tmp_path):
    topics = [f"{name}begun", f"{name}new", f"{name}lost"]
    begun, new, lost = topics

    def figures(rounds):
        return {row["topic"]: (row["state"], row["lag"]) for row in status(rounds)["tables"] if row["topic"] != new} | {
            new: rounds.tables[new].lag
        }

    send(namesrv, {begun: numbers(2), new: numbers(4), lost: numbers(3)})
    (tmp_path / new).write_text("a file in the place of the folder")
    with running(settings(namesrv, tmp_path, {f"{name}.*": {}})) as rounds:
        until(rounds, has_all(rounds, begun, lost))
    with sync.admin(namesrv) as admin:
        admin.delete_topic(lost)
        admin.create_topic(lost)
    now_s = [1000.0]
    tables = {begun: {"mode": "json"}, f"{name}.*": {}}
    with running(settings(namesrv, tmp_path, tables), monotonic=lambda: now_s[0]) as rounds:
        until(rounds, lambda: all(topic in rounds.tables and rounds.tables[topic].error for topic in topics))
        assert figures(rounds) == {begun: ("waiting", 0), lost: ("waiting", 0), new: 4}
        send(namesrv, {begun: numbers(5, 2), lost: numbers(6)})
        until(rounds, lambda: figures(rounds) == {begun: ("waiting", 5), lost: ("waiting", 6), new: 4})
        now_s[0] += 100
        assert [round(table.age_s) for table in rounds.tables.values()] == [100, 100, 100]
        send(namesrv, {begun: numbers(1, 7)})
        until(rounds, lambda: rounds.tables[begun].lag == 6)
        assert rounds.tables[begun].age_s == 100


def test_a_table_on_which_another_run_works_is_left_alone(namesrv, name, tmp_path):
    send(namesrv, {f"{name}a": numbers(2)})
    found = settings(namesrv, tmp_path, {f"{name}.*": {}})
    with running(found) as rounds, running(found) as other:
        until(rounds, has_all(rounds, f"{name}a"))
        until(other, lambda: f"{name}a" in other.tables and other.tables[f"{name}a"].has_failed)
        assert "another run is at work" in other.tables[f"{name}a"].error
    assert len(rows_of(tmp_path / f"{name}a")) == 2


def test_a_large_backlog_does_not_delay_a_small_topic(namesrv, name, tmp_path):
    send(namesrv, {f"{name}large": numbers(600), f"{name}small": numbers(3)})
    workers = PlainWorkers()
    with running(settings(namesrv, tmp_path, {f"{name}.*": {}}, rows_per_round=100), workers) as rounds:
        until(rounds, has_all(rounds, f"{name}small"))
        assert rounds.tables[f"{name}large"].lag >= 200
        assert rounds.tables[f"{name}large"].figures.rows > 0
        until(rounds, has_all(rounds, f"{name}large"))
    assert len(rows_of(tmp_path / f"{name}large")) == 600


def test_rows_per_second_limit_a_table(namesrv, name, tmp_path):
    send(namesrv, {f"{name}a": numbers(50)})
    now = [100.0]
    found = settings(namesrv, tmp_path, {f"{name}.*": {"rows_per_s": 10}})
    with running(found, monotonic=lambda: now[0]) as rounds:
        until(rounds, lambda: f"{name}a" in rounds.tables and rounds.tables[f"{name}a"].figures.batches == 1)
        table = rounds.tables[f"{name}a"]
        assert table.figures.rows <= 13  # a queue gets one at least
        before = table.figures.rows
        now[0] += 2
        rounds.run_round()
        assert 15 <= table.figures.rows - before <= 23


def test_a_table_without_new_messages_has_no_batch_and_no_open_files(namesrv, name, tmp_path):
    send(namesrv, {f"{name}a": numbers(2)})
    workers = PlainWorkers()
    with running(settings(namesrv, tmp_path, {f"{name}.*": {}}), workers) as rounds:
        until(rounds, has_all(rounds, f"{name}a"))
        parts = len(workers.done)
        for _ in range(3):
            assert rounds.run_round() is False
        assert len(workers.done) == parts


def test_brokers_that_cannot_be_asked_are_said_once_and_asked_again(name, tmp_path):
    said: list[str] = []
    tables = {f"{name}.*": {"options": {"retries": "0"}}}
    with running(settings("127.0.0.1:9", tmp_path, tables), say=said.append) as rounds:
        rounds.network._retry_policy = type(rounds.network._retry_policy)(0)
        rounds.run_round()
        rounds.run_round()
        assert rounds.error and rounds.checked_s is None
    assert len(said) == 1 and said[0].startswith("the brokers cannot be asked: ")


def test_small_files_are_merged_while_the_lake_runs(namesrv, name, tmp_path):
    said: list[str] = []
    now = [100.0]
    tables = {f"{name}.*": {"compact_every": "1m"}}
    with running(settings(namesrv, tmp_path, tables), say=said.append, monotonic=lambda: now[0]) as rounds:
        for at in range(4):
            send(namesrv, {f"{name}a": numbers(5, 5 * at)})
            until(rounds, lambda at=at: len(rows_of(tmp_path / f"{name}a")) == 5 * at + 5)
        before = len(list((tmp_path / f"{name}a").rglob("*.parquet")))
        now[0] += 61
        until(rounds, lambda: any("files merged to" in line for line in said))
        send(namesrv, {f"{name}a": numbers(5, 20)})
        until(rounds, lambda: len(rows_of(tmp_path / f"{name}a")) == 25)
    after = len(list((tmp_path / f"{name}a").rglob("*.parquet")))
    assert before >= 4 and after < before
    assert sorted(json.loads(row["body"])["id"] for row in rows_of(tmp_path / f"{name}a")) == list(range(25))


def test_a_full_disk_is_named_and_the_table_goes_on_when_there_is_room(namesrv, name, tmp_path):
    with skipped_without("a small disk"):
        disk = SmallDisk(tmp_path, 1 << 20)
    bodies = [os.urandom(4000) for _ in range(50)]
    with disk:
        send(namesrv, {name: bodies})
        with running(settings(namesrv, disk.folder, {name: {}}, every="1s")) as rounds:
            until(rounds, lambda: name in rounds.tables and rounds.tables[name].is_begun)
            table = rounds.tables[name]
            disk.fill()
            send(namesrv, {name: bodies})
            until(rounds, lambda: table.has_failed)
            assert f"no room on the disk for {disk.folder}/{name}" in table.error
            disk.free()
            until(rounds, has_all(rounds, name))
        assert sorted(row["body"] for row in rows_of(disk.folder / name)) == sorted([*bodies, *bodies])
