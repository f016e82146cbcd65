"""Run docs/use/lake.md from its first block to its last, with the extras of the page alone."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from deltalake import DeltaTable

from sparrowmq.client import blocking_client as sync
from sparrowmq.spark.pipelines.lake.address import Address, Catalog
from sparrowmq.spark.pipelines.lake.catalogs import open_catalog
from tests.place import Place
from tests.spark.pipelines.conftest import s3, s3_server
from tests.spark.pipelines.lake.rest_catalog import TOKEN, options_of, rest_catalog
from tests.spark.pipelines.lake.s3 import KEYS
from tests.spark.pipelines.test_page import PAGE as PIPELINES

__all__ = ["s3", "s3_server"]

PAGE = (Path(__file__).parents[2] / "docs" / "use" / "lake.md").read_text(encoding="utf-8")
WHOLE, REMOTE, KEYED = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"^sparrowmq lake .*$", PAGE, re.MULTILINE)
[DEFAULTS] = re.findall(r"\[defaults\]\n(?:.+\n)*", WHOLE)
ALL = '[tables.".*"]\n'
ORDERS = [b'{"id":1,"name":"ann"}', b'{"id":2,"name":"bob"}', b'{"id":1,"name":"anna"}', b'{"id":2,"op":"d"}']


class Reader:
    """Follows the page in a folder."""

    def __init__(self, place: Place, folder: Path) -> None:
        self.place = place
        self.folder = folder
        place.replaced |= {
            "/lake/": f"{folder}/lake/",
            "/var/lib": f"{folder}/lib",
            ":5560": f":{place.spare_port}",
        }

    def write(self, settings: str) -> None:
        (self.folder / "lake.toml").write_text(self.place.text(settings))

    def once(self) -> dict[str, Any]:
        """Run the lake until all messages are in their tables; return its report."""
        shown = self.place.shell("sparrowmq lake check lake.toml && sparrowmq lake run --once lake.toml 2>&1")
        assert "nothing was written" in shown and KEYS["AWS_SECRET_ACCESS_KEY"] not in shown and TOKEN not in shown
        report: dict[str, Any] = json.loads(shown.splitlines()[-1])
        assert "error" not in report, shown
        return report

    def table(self, path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = DeltaTable(self.place.text(path)).to_pyarrow_table().to_pylist()
        return found


@pytest.fixture
def reader(tmp_path):
    [start] = re.findall(r"^(sparrowmq dev .*) &$", PIPELINES, re.MULTILINE)
    sends = re.findall(r"^sparrowmq message send .*$", PIPELINES, re.MULTILINE)
    with ExitStack() as stack:
        place = Place(tmp_path, stack, "server", "lake")
        place.start(f"{start} --port 9876 --json", until='"namesrv"')
        place.shell("\n".join(sends))
        yield Reader(place, tmp_path)


def rows(table: list[dict[str, Any]]) -> list[tuple[int, str]]:
    return sorted((row["id"], row["name"]) for row in table)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_block_of_the_page_runs_in_its_order(reader, s3, tmp_path):
    """The catalog is REST, which needs no further package."""
    assert '`pip install ".[server,lake]"`' in PAGE
    check, run, status = COMMANDS
    place = reader.place
    reader.write(WHOLE)
    assert "orders: begins delta" in place.shell(check)
    place.start(run, until="Spark")
    place.shell(f"until {status} | grep -E 'orders +kept +2 '; do sleep 0.2; done")
    place.shell("kill $BROKER_PID; while kill -0 $BROKER_PID; do sleep 0.2; done 2> /dev/null")
    assert len(reader.table("/lake/orders")) == 2

    with sync.connect(place.namesrv) as mq:
        mq.admin.create_topic("customers", queues=1)
        for body in ORDERS:
            mq.send("customers", body)
    reader.write(WHOLE.replace(ALL, KEYED + ALL))
    assert (reader.once()["read"], rows(reader.table("/lake/customers"))) == (4, [(1, "anna")])

    with rest_catalog(tmp_path) as server:
        catalog = options_of(server)
        given = {
            **s3.variables,
            **{f"PYICEBERG_CATALOG__PROD__{key.upper()}": catalog[key] for key in catalog},
        }
        place.shell("\n".join(f"export {name}={value}" for name, value in given.items()))
        reader.write(WHOLE.replace(DEFAULTS, REMOTE).replace(ALL, KEYED + ALL))
        assert reader.once()["written"] > 0
        for topic, count in (("orders", 2), ("customers", 1)):
            root = Address(f"s3://bucket/tables/{topic}", tmp_path, Catalog("prod", f"lake.{topic}", catalog))
            found = open_catalog(root, tmp_path).load_table(f"lake.{topic}")
            assert (found.location(), found.scan().to_arrow().num_rows) == (root.url, count)
