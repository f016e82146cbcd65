"""An S3 on this machine, moto's server in a process of its own, and tables there that are written without Spark."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyarrow import fs

from sparrowmq.spark.pipelines.lake.address import Address, Catalog, storage_options
from sparrowmq.spark.pipelines.lake.catalogs import open_catalog, table_identifier
from sparrowmq.spark.pipelines.lake.lake import DATA_FOLDERS, Lake, TableLocation, open_lake, staging_address
from sparrowmq.spark.pipelines.lake.partitioning import Layout
from sparrowmq.spark.pipelines.lake.staged_files import Staged, StagedFile
from sparrowmq.spark.pipelines.tables.batch_files import RemoteTaskFiles, UploadTarget
from tests.interop.child import listens

DAY = "2026-01-31"
WRITER = "writer"
KEYS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "a-secret-that-no-log-may-show"}


@dataclass
class S3:
    """A server that can be stopped and started again; its objects are gone then."""

    port: int
    command: Sequence[str]
    process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, *self.command, str(self.port)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 100
        while not listens("127.0.0.1", self.port):
            assert self.process.poll() is None and time.monotonic() < until, "the server did not start"
            time.sleep(0.1)

    def stop(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def make(self, bucket: str) -> None:
        files = fs.S3FileSystem(endpoint_override=self.endpoint, region="us-east-1", allow_bucket_creation=True)
        files.create_dir(bucket)

    @property
    def variables(self) -> dict[str, str]:
        """Of programs that use it."""
        return {
            **KEYS,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }


@contextmanager
def running(*command: str) -> Iterator[S3]:
    if not command and find_spec("moto") is None:  # importing it takes half a second
        pytest.skip("needs moto")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = S3(port, command or ("-m", "moto.server", "-H", "127.0.0.1", "-p"))
    server.start()
    try:
        yield server
    finally:
        server.stop()


# A process of its own: deltalake lets no other thread run while it asks.
_DOOR = """
import asyncio, sys

async def main(to, port):
    async def through(reader, writer):
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", to)
        await asyncio.gather(pass_on(reader, far_writer), pass_on(far_reader, writer))

    async def pass_on(source, sink):
        while content := await source.read(65536):
            sink.write(content)
            await sink.drain()
        sink.close()

    await (await asyncio.start_server(through, "127.0.0.1", port)).serve_forever()

asyncio.run(main(*map(int, sys.argv[1:])))
"""


def door_to(server: S3) -> AbstractContextManager[S3]:
    """Another address of a server, that can be stopped while the server keeps its objects."""
    return running("-c", _DOOR, str(server.port))


@dataclass
class RemoteTable:
    """A table at an address; opened again for each batch, as after a restart."""

    kind: str
    root: Address
    writer: str = WRITER

    @property
    def place(self) -> TableLocation:
        return TableLocation(self.root, self.root.state, self.writer)

    @property
    def layout(self) -> Layout:
        return Layout(self.place.partitioning, self.kind == "iceberg", self.kind != "parquet")

    def open(self) -> Lake:
        return open_lake(self.kind, self.place)

    def add(self, batch: int, *numbers: int, **more: Any) -> None:
        self.open().commit(batch, self.staged(batch, *numbers, **more))

    def staged(self, batch: int, *numbers: int, day: str = DAY, **more: Any) -> Staged:
        """As tasks write them: a column `number`, and further ones with one value in all rows."""
        columns = {"number": list(numbers)} | {name: [value] * len(numbers) for name, value in more.items()}
        rows = pa.table(columns | {"_day": [date.fromisoformat(day)] * len(numbers)})
        to, folder = self.root, DATA_FOLDERS.get(self.kind, "")
        if self.kind == "parquet":
            to, folder = staging_address(self.place), f"staged-{batch}"
        target = UploadTarget(to.storage, folder, f"{self.writer}-{batch:09}", self.layout)
        task = RemoteTaskFiles(target, rows.schema)
        found = [row for batch in task(rows.to_batches()) for row in batch.to_pylist()]
        files = [StagedFile(None, row["name"], row["partition"], row["rows"], row["size"]) for row in found]
        return Staged(files, rows.schema, folder=folder)

    def rows(self) -> list[dict[str, Any]]:
        """As DuckDB sees what the reader of the format finds."""
        seen = self.seen()
        assert seen is not None
        found = duckdb.sql("select * from seen order by number")
        assert found is not None
        return list(found.to_arrow_table().to_pylist())

    def seen(self) -> Any:
        if self.kind == "delta":
            from deltalake import DeltaTable

            return DeltaTable(self.root.url, storage_options=storage_options(self.root.url)).to_pyarrow_table()
        if self.kind == "iceberg":
            table = open_catalog(self.root, self.root.state).load_table(table_identifier(self.root))
            return table.scan().to_arrow()
        import pyarrow.dataset as ds  # this loads pandas, which each worker would do for its collection of tests

        storage = self.root.storage
        files = [each.path for each in storage.list() if each.path.endswith(".parquet")]
        return ds.dataset(files, filesystem=storage.files, partitioning="hive").to_table()

    def numbers(self) -> list[int]:
        return sorted(self.seen().column("number").to_pylist())


def table_at(url: str, state: Path, kind: str, catalog: Catalog | None = None) -> RemoteTable:
    return RemoteTable(kind, Address(url, state, catalog))
