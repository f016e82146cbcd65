"""A Spark that has the jar of a lake, Delta's or Iceberg's, as a puppet.

    python -m tests.interop.lakes delta 127.0.0.1:9876 FOLDER

Each jar works with one Spark, Delta's with 4.2 and Iceberg's with 4.1, so the puppet runs in the environment that
`tools/sparks.py` makes of that version, unless it is the one that the tests run in.

Tables that the jar made itself lie in `FOLDER/jar`, those of the pipeline `table` in `FOLDER/ours`. Iceberg's jar finds
the latter as users let it: in the SQLite file of the table's state, as a catalog named `sparrowmq`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import pyspark

from tests.interop.child import scratch
from tests.interop.clients import Puppet
from tests.interop.kits import delta_jars, iceberg_jars
from tools.sparks import ROOT, environment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DELTA: Final = "delta"
ICEBERG: Final = "iceberg"
SPARKS: Final = {DELTA: "4.2.1", ICEBERG: "4.1.4"}
TABLE: Final = "topic"  # the name of each table
_JARS: Final[dict[str, Callable[[], Path]]] = {DELTA: delta_jars, ICEBERG: iceberg_jars}


class LakePuppet(Puppet):
    """Does what the commands of `Lake` are called. Raises: PeerMissing, the jar cannot be had."""

    ANSWER_LIMIT_S: ClassVar[float] = 240.0  # Spark's first query takes half a minute on a busy machine

    def __init__(self, kind: str, namesrv: str, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        home, version = scratch("lake"), SPARKS[kind]
        _JARS[kind]()
        python = sys.executable if pyspark.__version__ == version else str(environment(version))
        command = [python, "-m", "tests.interop.lakes", kind, namesrv, str(folder)]
        java = f"-Djava.io.tmpdir={home.name}"
        places = {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": python, "JAVA_TOOL_OPTIONS": java}
        super().__init__(home, command, **places)

    def do(self, command: str, **fields: object) -> list[list[object]]:
        """What the command gives: rows, or nothing."""
        answer: list[list[object]] = self.call(command, **fields)["rows"]
        return answer


@dataclass(frozen=True, slots=True)
class Lake:
    """What the puppet can do; a command is the name of a method."""

    kind: str
    namesrv: str
    folder: Path
    spark: SparkSession

    def version(self) -> list[list[object]]:
        """Of Spark."""
        return [[self.spark.version]]

    def copy(self, topic: str) -> None:
        """What is new in a topic goes to the jar's own table, by its own sink."""
        rows = self.spark.readStream.format("rocketmq").option("startingOffsets", "earliest")
        rows = rows.option("nameServer", self.namesrv).option("topic", topic)
        chosen = rows.load().selectExpr("queueId", "queueOffset", "cast(body as string) as body")
        writing = chosen.writeStream.format(self.kind).trigger(availableNow=True)
        query = writing.option("checkpointLocation", str(self.folder / "checkpoint")).toTable(self._jars())
        query.awaitTermination()

    def read(self) -> list[list[object]]:
        """The jar's own table."""
        return _rows(self.spark.table(self._jars()).selectExpr("queueId", "queueOffset", "body"))

    def publish(self, topic: str) -> None:
        """The jar's own table goes to a topic."""
        rows = self.spark.table(self._jars()).selectExpr("body", "concat(queueId, '-', queueOffset) as keys")
        sink = rows.write.format("rocketmq").option("nameServer", self.namesrv).option("topic", topic)
        sink.mode("append").save()

    def table(self, topic: str) -> list[list[object]]:
        """What is new in a topic goes to a table of the pipeline `table`; how much that was."""
        from sparrowmq.spark.pipelines import table

        to = self.folder / "ours" / TABLE
        report = table(
            topic, to, name_server=self.namesrv, format=self.kind, mode="raw", once=True, spark=self.spark,
            options={"maxOffsetsPerTrigger": "500"},
        )  # fmt: skip
        return [[report.written]]

    def read_table(self) -> list[list[object]]:
        """The pipeline's table, as the jar sees it."""
        self.spark.catalog.clearCache()
        found = self.spark.table(self._ours()).selectExpr(
            "_mq.queueId", "_mq.queueOffset", "cast(body as string) as body"
        )
        return _rows(found)

    def tidy(self) -> None:
        """The jar puts the files of the pipeline's table together."""
        if self.kind == DELTA:
            self.spark.sql(f"optimize {self._ours()}").collect()
        else:
            options = "map('rewrite-all', 'true')"
            self.spark.sql(
                f"call sparrowmq.system.rewrite_data_files(table => '{self._ours()}', options => {options})"
            ).collect()

    def _jars(self) -> str:
        return f"spark_catalog.default.{TABLE}" if self.kind == DELTA else f"jar.default.{TABLE}"

    def _ours(self) -> str:
        return f"delta.`{self.folder / 'ours' / TABLE}`" if self.kind == DELTA else f"sparrowmq.sparrowmq.{TABLE}"


def _rows(found: DataFrame) -> list[list[object]]:
    return sorted(list(row) for row in found.collect())


def settings(kind: str, folder: Path) -> dict[str, str]:
    """Spark's, as the documentation of each lake says."""
    jars = {"spark.jars": ",".join(map(str, sorted(_JARS[kind]().glob("*.jar"))))}
    jars["spark.sql.warehouse.dir"] = str(folder / "jar")
    if kind == DELTA:
        return jars | {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        }
    catalog = "org.apache.iceberg.spark.SparkCatalog"
    return jars | {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.jar": catalog,
        "spark.sql.catalog.jar.type": "hadoop",
        "spark.sql.catalog.jar.warehouse": str(folder / "jar"),
        "spark.sql.catalog.sparrowmq": catalog,
        "spark.sql.catalog.sparrowmq.type": "jdbc",
        "spark.sql.catalog.sparrowmq.uri": f"jdbc:sqlite:{folder}/ours/{TABLE}.state/catalog.db",
        "spark.sql.catalog.sparrowmq.warehouse": str(folder / "ours"),
        "spark.sql.catalog.sparrowmq.cache-enabled": "false",  # as the pipeline writes, too
    }


def main(given: Sequence[str]) -> None:
    from sparrowmq.spark.register import session
    from tests.spark.conftest import SETTINGS

    kind, namesrv, folder = given[0], given[1], Path(given[2])
    places = {"spark.local.dir": str(folder / "local")}
    lake = Lake(kind, namesrv, folder, session("local[2]", SETTINGS | places | settings(kind, folder)))
    for line in sys.stdin:
        command, *words = line.rstrip("\n").split("\t")
        rows = getattr(lake, command)(**dict(word.split("=", 1) for word in words))
        print(json.dumps({"rows": rows or []}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
