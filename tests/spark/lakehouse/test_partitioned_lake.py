"""Tables of a lake that are divided by fields and transforms, in all formats, with real brokers and files."""

from __future__ import annotations

import json
from collections import Counter
from datetime import date, timedelta

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from deltalake import DeltaTable

from sparrowmq.errors import ConfigError
from sparrowmq.spark.lakehouse.lake_settings import settings_of
from sparrowmq.spark.pipelines import compact, redrive
from sparrowmq.spark.pipelines.lake.catalogs import open_catalog, table_identifier
from sparrowmq.spark.pipelines.lake.partitioning import NULL
from sparrowmq.testing.background import BackgroundCluster
from tests.spark.lakehouse.lakes import running, send, settings
from tests.spark.lakehouse.test_rounds import has_all, until
from tests.spark.pipelines.lake.tables import KINDS, rows_of

pytestmark = pytest.mark.timeout(240)

BODIES = [
    b'{"country":"DE","id":1}',
    b'{"country":"a/b %2F=?","id":2}',
    b'{"country":null,"id":3}',
    b'{"id":4}',
    b'{"country":"007","id":34}',
    b'{"country":"%s","id":6}' % (b"x" * 300),
]


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory):
    with BackgroundCluster(tmp_path_factory.mktemp("broker")) as cluster:
        yield cluster.namesrv


@pytest.fixture
def name(request):
    return f"t{abs(hash(request.node.name))}"


def kept(namesrv, folder, name, bodies, **given):
    """Send bodies, and let a lake bring the table up to date; returns it."""
    send(namesrv, {name: bodies})
    found = settings(namesrv, folder, {name: {"mode": "json", **given}})
    with running(found) as rounds:
        until(rounds, has_all(rounds, name))
        return rounds.tables[name]


def paths_of(kind, folder):
    """The files of a table, relative to its data, as its own format has them."""
    if kind == "delta":
        return sorted(DeltaTable(str(folder)).file_uris())
    if kind == "iceberg":
        return sorted(task.file.file_path for task in loaded(folder).scan().plan_files())
    return sorted(str(path) for path in folder.rglob("*.parquet"))


def loaded(folder):
    return open_catalog(folder, folder.with_name(f"{folder.name}.state")).load_table(table_identifier(folder))


def seen(kind, folder):
    return rows_of(kind, folder, folder.with_name(f"{folder.name}.state"))


@pytest.mark.parametrize("kind", KINDS)
def test_each_row_is_in_the_partition_of_its_fields_and_reads_as_it_was_sent(namesrv, name, tmp_path, kind):
    given = {"format": kind, "partition": ["country", "bucket(16, id)"]}
    table = kept(namesrv, tmp_path, name, BODIES, **given)
    assert (table.figures.rows, table.figures.errors) == (5, 1)
    kept(namesrv, tmp_path, name, [b'{"country":"DE","id":7,"more":1}'], **given)
    rows = {row["id"]: row["country"] for row in seen(kind, tmp_path / name)}
    lost = "7" if kind == "parquet" else "007"  # what DuckDB guesses of a folder's name
    expected = {1: "DE", 2: "a/b %2F=?", 3: None, 4: None, 34: "007", 7: "DE"}
    assert {key: str(value) if value else None for key, value in rows.items()} in (
        expected,
        expected | {34: lost},
    )
    (error,) = seen(kind, tmp_path / f"{name}.errors") if kind != "iceberg" else [{"reason": ""}]
    assert error["reason"] in ("country is too long for a partition", "")
    folders = [path.split("/")[-3:-1] for path in paths_of(kind, tmp_path / name)]
    assert ["country=007", f"id_bucket={2017239379 % 16}"] in folders
    assert sum(folder == f"country={NULL}" for folder, _ in folders) == 2
    assert table.table_settings.partition == "country, bucket(16, id)"


def test_iceberg_has_real_transforms_by_which_readers_skip_files(namesrv, name, tmp_path):
    bodies = [b'{"id":%d,"name":"n%02d","at":"2026-01-%02dT05:00:00Z"}' % (n, n, n % 28 + 1) for n in range(40)]
    by = "bucket(8, id), truncate(2, name), month(at), hour"
    kept(namesrv, tmp_path, name, bodies, format="iceberg", partition=by)
    table = loaded(tmp_path / name)
    spec = [(field.name, str(field.transform)) for field in table.spec().fields]
    assert spec == [
        ("id_bucket", "bucket[8]"), ("name_trunc", "truncate[2]"), ("at_month", "month"), ("_hour", "hour"),
    ]  # fmt: skip
    everything = len(list(table.scan().plan_files()))
    for condition, count in (
        ("id = 5", 1), ("name = 'n31'", 1), ("at >= '2026-02-01T00:00:00+00:00'", 0),
        ("_mq.storeTimestamp < '2020-01-01T00:00:00+00:00'", 0),
    ):  # fmt: skip
        files = list(table.scan(condition).plan_files())
        assert len(files) < everything / 2, condition
        assert table.scan(condition).to_arrow().num_rows == count
    assert "id_bucket" not in table.schema().column_names


def test_delta_has_columns_by_which_readers_skip_files(namesrv, name, tmp_path):
    bodies = [b'{"id":%d,"country":"c%d"}' % (n, n % 4) for n in range(40)]
    kept(namesrv, tmp_path, name, bodies, format="delta", partition="country, bucket(4, id), hour")
    table = DeltaTable(str(tmp_path / name))
    assert table.metadata().partition_columns == ["country", "id_bucket", "_hour"]
    everything = len(table.file_uris())
    some = table.file_uris(file_pruning_predicate=[("country", "=", "c1")])
    assert 0 < len(some) < everything
    rows = table.to_pyarrow_dataset().to_table().to_pylist()
    assert {(row["country"], row["id"]) for row in rows} == {(f"c{n % 4}", n) for n in range(40)}
    assert all(row["_hour"] == f"{row['_mq']['storeTimestamp']:%Y-%m-%d-%H}" for row in rows)


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_without_partitions_is_one_folder(namesrv, name, tmp_path, kind):
    kept(namesrv, tmp_path, name, BODIES, format=kind, partition="none")
    folder = "data" if kind == "iceberg" else name
    assert {path.split("/")[-2] for path in paths_of(kind, tmp_path / name)} == {folder}
    assert len(seen(kind, tmp_path / name)) == len(BODIES)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_row_of_a_key_moves_to_another_partition(namesrv, name, tmp_path, kind):
    given = {"format": kind, "partition": "country", "key": "id", "deletes": "gone", "replaced_stay": "0s"}
    first = [b'{"id":1,"country":"DE"}', b'{"id":2,"country":"DE"}', b'{"id":3,"country":null}']
    kept(namesrv, tmp_path, name, first, **given)
    kept(namesrv, tmp_path, name, [b'{"id":1,"country":"FR"}', b'{"id":3,"gone":true}'], **given)
    assert {(row["id"], row["country"]) for row in seen(kind, tmp_path / name)} == {(1, "FR"), (2, "DE")}
    folders = Counter(path.split("/")[-2] for path in paths_of(kind, tmp_path / name))
    assert folders == {"country=DE": 1, "country=FR": 1}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_small_files_are_merged_within_their_partitions(namesrv, name, tmp_path, kind):
    given = {"format": kind, "partition": "country"}
    for number in range(3):
        bodies = [b'{"country":"%s","n":%d}' % (country, number) for country in (b"DE", b"a b")]
        kept(namesrv, tmp_path, name, [*bodies, b'{"n":%d}' % number], **given)
    assert len(paths_of(kind, tmp_path / name)) == 9
    report = compact(tmp_path / name)
    assert (report.read, report.written) == (9, 3)
    found = Counter((row["country"], row["n"]) for row in seen(kind, tmp_path / name))
    assert found == {(country, n): 1 for country in ("DE", "a b", None) for n in range(3)}
    kept(namesrv, tmp_path, name, [b'{"country":"DE","n":9}'], **given)
    assert len(seen(kind, tmp_path / name)) == 10


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by", ["hour", "country, day", "month"])
def test_old_days_are_taken_out_of_tables_that_are_divided_by_the_store_time(namesrv, name, tmp_path, kind, by):
    table = kept(namesrv, tmp_path, name, BODIES[:2], format=kind, partition=by, keep_days=5)
    today = date.today()
    assert table.merge(today + timedelta(days=4))[2] == 0
    assert len(seen(kind, tmp_path / name)) == 2
    assert table.merge(today + timedelta(days=40))[2] >= 1
    assert seen(kind, tmp_path / name) == []


def test_errors_that_fit_later_become_rows_of_their_partitions(namesrv, name, tmp_path):
    table = kept(namesrv, tmp_path, name, [b'{"country":"DE","a":1}', b'{"country":"FR","A":1}'], partition="country")
    assert table.figures.errors == 1
    settled = json.loads((tmp_path / f"{name}.state" / "table.json").read_text())
    del settled["checksum"]
    wider = settled["fields"] | {"A": settled["fields"].pop("a")} if "a" in settled["fields"] else {}
    wider.pop("a", None)
    (tmp_path / f"{name}.state" / "table.json").write_text(json.dumps(settled | {"fields": wider}))
    report = redrive(tmp_path / name)
    assert report.read == 1
    if report.written:
        assert (tmp_path / name / "country=FR").is_dir()


def test_columns_of_partitions_keep_their_types(namesrv, name, tmp_path):
    given = {"format": "delta", "partition": "zip, day(at), bucket(4, id)"}
    table = kept(namesrv, tmp_path, name, [b'{"zip":1,"id":7,"at":"2026-01-01T00:00:00Z"}'], **given)
    assert (table.table_settings.fields["zip"], table.table_settings.fields["at"]) == ("bigint", "timestamp")
    more = [
        b'{"zip":"x","id":1}',
        b'{"zip":2,"id":1.5}',
        b'{"zip":3,"id":3,"at":"soon"}',
        b'{"ZIP":4}',
        b'{"at_day":1}',
    ]
    table = kept(namesrv, tmp_path, name, [*more, b'{"zip":5,"id":8}'], **given)
    assert (table.figures.rows, table.figures.errors) == (1, 5)
    reasons = {row["reason"] for row in seen("delta", tmp_path / f"{name}.errors")}
    assert {"zip is no bigint", "id is no bigint", "at is no timestamp"} < reasons


def test_a_table_is_never_divided_in_two_ways(namesrv, name, tmp_path):
    kept(namesrv, tmp_path, name, BODIES[:1], format="delta", partition="country")
    found = settings(namesrv, tmp_path, {name: {"mode": "json", "format": "delta"}})
    with running(found) as rounds:
        rounds.run_round()
        why = rounds.tables[name].error
    assert "begun with the partition country, not day" in why and "write the partition `country`" in why


def test_another_program_may_not_divide_a_table_anew(namesrv, name, tmp_path):
    kept(namesrv, tmp_path, name, BODIES[:1], format="iceberg", partition="country")
    with loaded(tmp_path / name).update_spec() as update:
        update.remove_field("country")
    found = settings(namesrv, tmp_path, {name: {"mode": "json", "format": "iceberg", "partition": "country"}})
    with running(found) as rounds:
        rounds.run_round()
        assert "is divided by none" in rounds.tables[name].error


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"partition": "bucket(0, id)"}, "bucket of 0; write 1 to 10,000"),
        ({"partition": []}, "must be a text"),
        ({"partition": ["country", 7]}, "must be a text"),
        ({"partition": "country", "keep_days": 9}, "write|begin a table with the partition country, day"),
        ({"mode": "raw", "partition": "country"}, "it has keys and tags"),
        ({"mode": "raw", "partition": "tags"}, r"write truncate\(32, tags\) or bucket\(16, tags\)"),
        ({"key": "id", "partition": "id", "format": "delta"}, r"write bucket\(16, id\)"),
        ({"mode": "schema", "schema": "id bigint", "partition": "ID"}, "did you mean id"),
        (
            {"mode": "schema", "schema": "id int, id_bucket int", "partition": "bucket(4,id)"},
            "name the column otherwise",
        ),
    ],
)
def test_a_partition_that_does_not_fit_is_refused_at_the_start(given, why):
    with pytest.raises(ConfigError, match=why):
        settings_of(
            {"name_server": "h:1", "tables": {"a": {"to": "/x/{topic}", "mode": "json", **given}}},
            "lake.toml",
        )
