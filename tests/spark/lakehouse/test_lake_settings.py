"""sparrowmq.spark.lakehouse.lake_settings: the file, its defaults and sections, and errors that name the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparrowmq.errors import ConfigError
from sparrowmq.spark.lakehouse.lake_settings import read_settings, settings_of
from sparrowmq.spark.pipelines.lake.address import Address, Catalog

FILE = """
name_server = "127.0.0.1:9876"
every = "2s"
bytes_per_round = "64MiB"

[defaults]
to = "/lake/{topic}"
format = "delta"
compact_every = "30m"
file_size = "128MiB"

[tables."orders-.*"]
mode = "json"
keep_days = 90
options = {tags = "paid"}

[tables."tmp-.*"]
skip = true

[tables.".*"]
every = "1m"
"""


@pytest.fixture
def settings(tmp_path):
    path = tmp_path / "lake.toml"
    path.write_text(FILE)
    return read_settings(path)


def test_the_first_section_that_fits_a_topic_has_it_above_the_defaults(settings):
    orders = settings.section_for("orders-eu")
    assert (orders.format, orders.mode, orders.keep_days, orders.every_s) == ("delta", "json", 90, 0)
    assert orders.file_size == 128 << 20
    assert orders.compact_every_s == 1800 and str(orders.root("orders-eu")) == "/lake/orders-eu"
    other = settings.section_for("payments")
    assert (other.mode, other.every_s, other.keep_days) == ("raw", 60, None)
    assert (settings.every_s, settings.bytes_per_round) == (2, 64 << 20)


def test_skipped_topics_and_those_of_the_system_become_no_tables(settings):
    for topic in ("tmp-1", "%RETRY%billing", "%DLQ%billing", "RMQ_SYS_TRACE_TOPIC", "SCHEDULE_TOPIC_XXXX"):
        assert settings.section_for(topic) is None, topic


def test_the_account_comes_from_the_environment_and_is_not_in_the_file(settings):
    environ = {"ROCKETMQ_ACCESS_KEY": "a", "ROCKETMQ_SECRET_KEY": "s"}
    assert settings.source(settings.section_for("orders-eu"), environ) == {
        "accessKey": "a", "secretKey": "s", "tags": "paid", "nameServer": "127.0.0.1:9876",
    }  # fmt: skip


def test_the_name_server_may_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("NAMESRV_ADDR", "10.0.0.1:9876")
    given = {"tables": {".*": {"to": "/lake/{topic}"}}}
    assert settings_of(given, "f").name_server == "10.0.0.1:9876"
    monkeypatch.delenv("NAMESRV_ADDR")
    with pytest.raises(ConfigError, match='write name_server = "host:9876"'):
        settings_of(given, "f")


BY_SCHEMA = {"to": "/l/{topic}", "mode": "schema"}
ON_S3 = {"to": "s3://bucket/{topic}", "state": "/state/{topic}"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"tables": {}}, "names no topics"),
        ({"evry": "5s"}, "there is no setting evry; did you mean every"),
        ({"new_topics_every": 5}, 'new_topics_every = 5 must be a time with its unit, as "10s"'),
        ({"every": "0s"}, "every = '0s' must be a time of a second or more"),
        ({"round": "0s"}, "round = '0s' must be a time of a second or more"),
        ({"metrics": "5560"}, "metrics: '5560' is not an address; write host:port"),
        ({"metrics": "0.0.0.0:5560"}, "0.0.0.0:5560 show the names of topics to other machines"),
        ({"metrics": "0.0.0.0:5560", "insecure": "yes"}, "true or false"),
        ({"bytes_per_round": "1k"}, "must be a size of 1 MiB or more"),
        ({"rows_per_round": 0}, "rows_per_round = 0 must be a whole number above 0"),
        ({"spark": {"spark.x": 1}}, "must be a table of texts"),
        ({"tables": {"a": {"to": "/l/{date}/{topic}"}}}, r"\{date\} in /l/\{date\}/\{topic\} has no meaning"),
        ({"tables": {"(": {"to": "/lake/{topic}"}}}, r"\[tables\.\"\(\"\] is no regular expression"),
        ({"tables": {"a-.*, b": {}}}, r'matches no topic; for several write \[tables\."a-\.\*\|b"\]'),
        ({"tables": {"a": {"to": "/lake/orders"}}}, r'write the folder of its tables, as to = "/lake/\{topic\}"'),
        ({"tables": {"a": {"to": "s3://b/{topic}"}}}, r'name a folder of this machine too, as state = "/var'),
        ({"tables": {"a": {"to": "s3://b/{topic}", "state": "/s"}}}, r"each table has its own state, as state ="),
        ({"tables": {"a": {"to": "ftp://b/{topic}", "state": "/s/{topic}"}}}, "has the scheme ftp; tables can be at"),
        ({"tables": {"a": {**ON_S3, "catalog": "prod"}}}, r'go together, as catalog = "prod" and table = "shop\.'),
        ({"tables": {"a": {**ON_S3, "catalog": "prod", "table": "shop.t"}}}, "go together, as catalog"),
        ({"tables": {"a": {**ON_S3, "format": "iceberg", "catalog": "p", "table": "{topic}"}}}, "the name of a table"),
        ({"tables": {"a": {**ON_S3, "catalog": "prod", "table": "s.{topic}"}}}, 'or catalog = "" and table = ""'),
        ({"tables": {"a": {**ON_S3, "catalog_options": {"uri": "x"}}}}, "catalog_options go with a catalog"),
        ({"tables": {"a": {"to": "/l/{topic}", "mode": "schema"}}}, "mode schema and a schema.* go together"),
        ({"tables": {"a": {"to": "/l/{topic}", "schema": "id int"}}}, "mode schema and a schema.* go together"),
        ({"tables": {"a": {**BY_SCHEMA, "schema": "id int, ID string"}}}, "names the column ID beside id; rename one"),
        ({"tables": {"a": {**BY_SCHEMA, "schema": "_mq int"}}}, "names the column _mq beside _mq, which the table has"),
        ({"tables": {"a": {"to": "/l/{topic}", "format": "orc"}}}, "must be one of parquet, delta, iceberg"),
        ({"tables": {"a": {"to": "/l/{topic}", "options": {"tag": "x"}}}}, "unknown option tag; did you mean tags"),
        ({"tables": {"a": {"to": "/l/{topic}", "options": {"endingOffsets": "latest"}}}}, "end a batch query"),
        ({"tables": {"a": {"to": "/l/{topic}", "skip": "yes"}}}, "must be true or false"),
        ({"tables": {"a": {"to": "/l/{topic}", "file_size": "1GiB"}}}, "must be a size from 64 MiB to 512 MiB"),
        ({"tables": {"a": 3}}, "is no section of keys and values"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_what_is_allowed(given, says):
    right = {"name_server": "127.0.0.1:9876", "tables": {"a": {"to": "/lake/{topic}"}}}
    with pytest.raises(ConfigError, match=says):
        settings_of({**right, **given}, "lake.toml")


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"absent\.toml cannot be read: No such file"):
        read_settings(tmp_path / "absent.toml")
    (tmp_path / "bad.toml").write_text("a = ")
    with pytest.raises(ConfigError, match=r"bad\.toml is no TOML"):
        read_settings(tmp_path / "bad.toml")


def test_a_file_may_begin_with_the_mark_of_utf_8(tmp_path):
    text = 'name_server = "a:1"\n[tables.".*"]\nto = "/läke/{topic}"\n'
    (tmp_path / "lake.toml").write_text(text, encoding="utf-8-sig")
    [(_, found)] = read_settings(tmp_path / "lake.toml").sections
    assert found.to == "/läke/{topic}"


def test_an_empty_text_in_a_section_takes_a_default_out():
    defaults = {**ON_S3, "format": "iceberg", "catalog": "prod", "table": "shop.{topic}"}
    section = {"format": "delta", "catalog": "", "table": ""}
    given = {"name_server": "a:1", "defaults": defaults, "tables": {"a": section}}
    [(_, found)] = settings_of(given, "lake.toml").sections
    assert (found.catalog, found.table, found.state) == (None, None, ON_S3["state"])
    with pytest.raises(ConfigError, match=r"registry = '' must be a text"):
        settings_of({**given, "tables": {"a": {**section, "registry": ""}}}, "lake.toml")


def test_a_table_may_be_behind_an_address_and_in_a_catalog():
    section = {**ON_S3, "format": "iceberg", "catalog": "prod", "table": "shop.{topic}"}
    given = {"name_server": "127.0.0.1:9876", "tables": {".*": section}}
    found = settings_of(given, "f").section_for("orders")
    assert found is not None and found.root("orders") == Address(
        "s3://bucket/orders", Path("/state/orders"), Catalog("prod", "shop.orders")
    )
