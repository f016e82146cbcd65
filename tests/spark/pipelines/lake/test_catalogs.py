"""sparrowmq.spark.pipelines.lake.catalogs: a table in the catalog that pyiceberg's configuration names."""

import uuid

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyiceberg")

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.lake.address import Address, Catalog
from sparrowmq.spark.pipelines.lake.catalogs import catalog_secrets, check_location, open_catalog, table_identifier
from sparrowmq.spark.pipelines.lake.retry_policy import RetryPolicy
from tests.once.postgres import LivePostgres, needs_postgres
from tests.spark.pipelines.lake.rest_catalog import options_of, rest_catalog
from tests.spark.pipelines.lake.s3 import table_at

OF_ABSENT_DRIVER = {"type": "sql", "uri": "postgresql+pg8000://lake@127.0.0.1/catalog"}

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def without_a_file(monkeypatch, tmp_path):
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))


def add_and_read(url, state, catalog):
    """Two batches and a new column; returns the table as others find it in the catalog."""
    table = table_at(url, state, "iceberg", catalog)
    table.add(0, 1)
    table.add(0, 1)
    table.add(1, 2, name="b")
    assert table.open().last_batch() == 1
    return open_catalog(table.root, state).load_table(catalog.table)


def rows_of(table):
    return sorted((row["number"], row["name"]) for row in table.scan().to_arrow().to_pylist())


@needs_postgres
@pytest.mark.slow
def test_postgresql_keeps_a_table_on_s3(s3, tmp_path, monkeypatch):
    with LivePostgres() as server:
        monkeypatch.setenv("PYICEBERG_CATALOG__PROD__TYPE", "sql")
        monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", server.url)
        url = f"s3://bucket/{uuid.uuid4().hex}/orders"
        found = add_and_read(url, tmp_path / "state", Catalog("prod", "shop.orders"))
        assert rows_of(found) == [(1, None), (2, "b")]
        assert found.location() == url
        assert not (tmp_path / "state" / "catalog.db").exists()


@pytest.mark.slow
def test_glue_keeps_a_table_on_s3(s3, tmp_path, monkeypatch):
    pytest.importorskip("boto3")
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    options = {"type": "glue", "glue.endpoint": s3.endpoint}
    url = f"s3://bucket/{uuid.uuid4().hex}/orders"
    found = add_and_read(url, tmp_path / "state", Catalog("glue", "shop.orders", options))
    assert rows_of(found) == [(1, None), (2, "b")]


@pytest.mark.slow
def test_a_rest_catalog_keeps_a_table_on_s3_and_its_token_is_never_shown(s3, tmp_path):
    url = f"s3://bucket/{uuid.uuid4().hex}/orders"
    with rest_catalog(tmp_path) as server:
        found = add_and_read(url, tmp_path / "state", Catalog("rest", "shop.orders", options_of(server)))
        assert rows_of(found) == [(1, None), (2, "b")]
        assert found.location() == url
        wrong = Catalog("rest", "shop.orders", {**options_of(server), "token": "another-token"})
        with pytest.raises(ConfigError, match="correct the token or the credential of the catalog") as raised:
            RetryPolicy("orders", limit_s=0).call(lambda: open_catalog(Address(url, tmp_path, wrong), tmp_path))
        assert "another-token" not in str(raised.value)


def test_a_file_of_pyiceberg_configures_a_catalog(tmp_path):
    (tmp_path / ".pyiceberg.yaml").write_text(
        f"catalog:\n  prod:\n    type: sql\n    uri: sqlite:///{tmp_path}/shared.db\n"
    )
    root = (tmp_path / "orders").as_uri()
    found = add_and_read(root, tmp_path / "state", Catalog("prod", "shop.orders"))
    assert rows_of(found) == [(1, None), (2, "b")]
    assert found.location() == root


def test_a_catalog_without_configuration_is_refused_with_what_to_set(tmp_path):
    root = Address("file:///lake/orders", tmp_path, Catalog("prod", "shop.orders"))
    with pytest.raises(ConfigError, match=r"prod is not configured; .* by PYICEBERG_CATALOG__PROD__URI, or"):
        open_catalog(root, tmp_path)


def test_a_driver_that_is_missing_is_named(tmp_path):
    """pyiceberg itself names the package of another driver, psycopg2."""
    root = Address("file:///lake/orders", tmp_path, Catalog("prod", "shop.orders", OF_ABSENT_DRIVER))
    with pytest.raises(ConfigError, match=r"prod needs a package: .*'pg8000'; install it as docs/use/remote-tables.md"):
        open_catalog(root, tmp_path)


@needs_postgres
def test_a_database_that_does_not_exist_is_no_outage(tmp_path):
    with LivePostgres() as server:
        options = {"type": "sql", "uri": f"{server.url}-none"}
        root = Address("file:///lake/orders", tmp_path, Catalog("prod", "shop.orders", options))
        with pytest.raises(ConfigError, match="make the database or the role of the catalog, or correct"):
            RetryPolicy("orders", limit_s=0).call(lambda: open_catalog(root, tmp_path))


def test_no_error_shows_a_key(tmp_path):
    options = {"credential": "ada:s3cret-word", "type": "wrong"}
    root = Address("file:///lake/orders", tmp_path, Catalog("prod", "shop.orders", options))
    with pytest.raises(ConfigError, match="the catalog prod cannot be opened") as raised:
        open_catalog(root, tmp_path)
    assert "s3cret" not in str(raised.value)
    assert "ada:s3cret-word" in catalog_secrets(root)


def test_a_table_that_is_elsewhere_in_the_catalog_is_refused(tmp_path):
    root = Address("s3://bucket/orders", tmp_path, Catalog("prod", "shop.orders"))
    check_location("s3://bucket/orders/", root)
    with pytest.raises(ConfigError, match=r"has shop.orders at s3://bucket/other, and not at s3://bucket/orders"):
        check_location("s3://bucket/other", root)


def test_without_a_catalog_a_table_has_one_in_its_state(tmp_path):
    assert table_identifier(tmp_path / "orders") == ("sparrowmq", "orders")
    open_catalog(tmp_path / "orders", tmp_path / "state")
    assert (tmp_path / "state" / "catalog.db").exists()
