"""sparrowmq.spark.pipelines.lake.address: where a table is, and its files there."""

import pickle
import uuid
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.lake.address import (
    Address,
    Catalog,
    Storage,
    file_io_properties,
    s3_settings,
    storage_options,
    table_root,
)


def test_a_folder_is_a_path_and_has_its_state_beside_it(tmp_path):
    assert table_root(tmp_path / "orders") == tmp_path / "orders"


def test_an_address_needs_a_folder_for_its_state(tmp_path):
    root = table_root("s3://bucket/lake/orders/", tmp_path)
    assert root == Address("s3://bucket/lake/orders", tmp_path)
    with pytest.raises(ConfigError, match=r"Spark's checkpoint must be in one; name it \(state, --state\)"):
        table_root("s3://bucket/lake/orders")


def test_a_folder_with_a_catalog_becomes_an_address_and_keeps_its_state_beside_it(tmp_path):
    catalog = Catalog("prod", "shop.orders")
    root = table_root(tmp_path / "orders", None, catalog)
    assert root == Address((tmp_path / "orders").as_uri(), tmp_path / "orders.state", catalog)
    assert str(table_root(tmp_path / "orders", tmp_path / "elsewhere")) == (tmp_path / "orders").as_uri()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("ftp://host/orders", "has the scheme ftp; tables can be at s3:, gs:"),
        ("s3://bucket", "is no address of a table; write one with a path, such as s3://bucket/orders"),
        (Path("s3://bucket/orders"), "has lost a slash"),
    ],
)
def test_addresses_that_cannot_be(tmp_path, given, why):
    with pytest.raises(ConfigError, match=why):
        table_root(given, tmp_path)


def test_tables_beside_it_are_beside_it_in_the_catalog(tmp_path):
    root = Address("s3://bucket/lake/orders", tmp_path, Catalog("prod", "shop.orders", {"uri": "u"}))
    errors = root.with_name("orders.errors")
    assert (str(errors), errors.name) == ("s3://bucket/lake/orders.errors", "orders.errors")
    assert errors.catalog == Catalog("prod", "shop.orders_errors", {"uri": "u"})


@pytest.mark.parametrize("name", ["orders", "shop.", ".orders", ""])
def test_a_name_in_a_catalog_has_a_namespace(name):
    with pytest.raises(ConfigError, match=r"write NAMESPACE\.TABLE"):
        Catalog("prod", name)


def test_options_of_a_catalog_are_not_shown():
    assert "s3cret" not in repr(Catalog("prod", "shop.orders", {"token": "s3cret"}))


def test_endpoint_and_region_come_from_the_environment(monkeypatch):
    variables = {"AWS_ENDPOINT_URL": "http://10.0.0.1:9000", "AWS_SECRET_ACCESS_KEY": "never"}
    assert s3_settings(variables) == {"endpoint": "http://10.0.0.1:9000", "region": "us-east-1"}
    assert s3_settings({"AWS_DEFAULT_REGION": "eu-west-1"}) == {"region": "eu-west-1"}
    of_s3 = {**variables, "AWS_ENDPOINT_URL_S3": "https://s3.example", "AWS_REGION": "eu-west-1"}
    assert s3_settings(of_s3) == {"endpoint": "https://s3.example", "region": "eu-west-1"}
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://10.0.0.1:9000")
    assert storage_options("s3://bucket/orders") == {
        "region": "us-east-1",
        "endpoint_url": "http://10.0.0.1:9000",
        "allow_http": "true",
    }
    assert file_io_properties("s3://bucket/orders")["s3.endpoint"] == "http://10.0.0.1:9000"
    assert storage_options("/lake/orders") is None
    assert file_io_properties("file:///lake/orders") == {}


@pytest.fixture(params=["s3", "file"])
def storage(request, s3, tmp_path):
    """An empty folder on S3, and one on this machine."""
    if request.param == "file":
        return Address((tmp_path / "orders").as_uri(), tmp_path).storage
    return Address(f"s3://bucket/{uuid.uuid4().hex}/orders", tmp_path).storage


def test_files_are_written_read_listed_and_removed(storage, tmp_path):
    assert storage.read("a/b.json") is None
    assert storage.list() == []
    storage.write("a/b.json", b"{}")
    (tmp_path / "local").write_bytes(b"x" * 3_000_000)
    storage.upload(str(tmp_path / "local"), "_day=2026-01-31/a b=c.parquet")
    assert storage.read("a/b.json") == b"{}"
    names = sorted(storage.relative(each.path) for each in storage.list())
    assert names == ["_day=2026-01-31/a b=c.parquet", "a/b.json"]
    storage.delete("a/b.json")
    storage.delete("a/b.json")
    assert [each.size for each in storage.list()] == [3_000_000]
    storage.clear()
    assert storage.list() == []
    storage.clear()


def test_workers_get_no_keys(s3, tmp_path):
    storage = Address("s3://bucket/orders", tmp_path).storage
    storage.read("absent")  # now it has an open file system
    sent = pickle.dumps(storage)
    for secret in (s3.variables["AWS_SECRET_ACCESS_KEY"], s3.variables["AWS_ACCESS_KEY_ID"]):
        assert secret.encode() not in sent
    assert pickle.loads(sent) == storage


def test_a_bucket_that_is_not_there_is_said(s3):
    Storage("s3://bucket/orders", s3_settings(s3.variables)).check_bucket()
    with pytest.raises(ConfigError, match=f"there is no bucket bukket at {s3.endpoint}; make it, or correct"):
        Storage("s3://bukket/orders", s3_settings(s3.variables)).check_bucket()


@pytest.mark.parametrize("to", ["/lake/orders", "file:///lake/orders"])
@pytest.mark.parametrize("state", ["/lake/orders", "/lake/orders/state"])
def test_a_state_inside_of_its_table_is_refused(to, state):
    with pytest.raises(ConfigError, match=f"the state {state} is inside of the table"):
        table_root(to, state)
