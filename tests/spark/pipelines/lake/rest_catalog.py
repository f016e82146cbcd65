"""An Iceberg REST catalog on this machine: its requests over a catalog in SQLite, in a process of its own.

It has the requests that pyiceberg makes, and demands a token. Tables have the addresses that clients give them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any, Final

import msgspec
from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest, Table

from sparrowmq.spark.pipelines.lake.address import file_io_properties
from sparrowmq.spark.pipelines.lake.catalogs import without_pool
from tests.spark.pipelines.lake.s3 import S3, running

TOKEN: Final = "a-token-that-no-log-may-show"
STATUSES: Final[dict[type[Exception], int]] = {
    NoSuchNamespaceError: 404,
    NoSuchTableError: 404,
    CommitFailedException: 409,
    NamespaceAlreadyExistsError: 409,
    TableAlreadyExistsError: 409,
}
_PLACE: Final = re.compile(r"/v1/namespaces(?:/(?P<namespace>[^/]+)(?:/(?P<tables>tables)(?:/(?P<table>[^/]+))?)?)?")


class Rest(ThreadingHTTPServer):
    """Answers for one database."""

    def __init__(self, port: int, database: str) -> None:
        super().__init__(("127.0.0.1", port), _Request)
        self.catalog = without_pool(SqlCatalog("rest", uri=f"sqlite:///{database}", **file_io_properties("s3://")))
        self.lock = Lock()  # one commit at a time

    def answer(self, method: str, path: str, content: bytes) -> Any:
        """The answer to a request, or None for one without a body."""
        if path == "/v1/config":
            return {"defaults": {}, "overrides": {}}
        if (found := _PLACE.fullmatch(path)) is None:
            raise LookupError(path)
        namespace, tables, table = found["namespace"], found["tables"], found["table"]
        match method, tables, table:
            case "POST", None, None:
                given = msgspec.json.decode(content)
                self.catalog.create_namespace(tuple(given["namespace"]))
                return given
            case _, None, None:
                return {
                    "namespace": [namespace],
                    "properties": self.catalog.load_namespace_properties(namespace),
                }
            case "POST", _, None:
                return _said(self._made(namespace, CreateTableRequest.model_validate_json(content)))
            case "POST", _, _:
                return self._committed(CommitTableRequest.model_validate_json(content))
            case _:
                return _said(self.catalog.load_table((namespace, table)))

    def _made(self, namespace: str, given: CreateTableRequest) -> Table:
        return self.catalog.create_table(
            (namespace, given.name),
            given.table_schema,
            given.location,
            given.partition_spec or UNPARTITIONED_PARTITION_SPEC,
            properties=given.properties,
        )

    def _committed(self, given: CommitTableRequest) -> Any:
        name = (*given.identifier.namespace.root, given.identifier.name)
        table = self.catalog.load_table(name)
        done = self.catalog.commit_table(table, given.requirements, given.updates)
        return msgspec.json.decode(done.model_dump_json())


def _said(table: Table) -> Any:
    return {
        "metadata-location": table.metadata_location,
        "metadata": msgspec.json.decode(table.metadata.model_dump_json()),
    }


class _Request(BaseHTTPRequestHandler):
    server: Rest

    def do_GET(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._refuse(401, "NotAuthorizedException", "no such token")
            return
        try:
            with self.server.lock:
                answer = self.server.answer(self.command, self.path.partition("?")[0], content)
        except tuple(STATUSES) as error:
            self._refuse(STATUSES[type(error)], type(error).__name__, str(error))
        else:
            self._send(200, answer)

    do_POST = do_HEAD = do_GET

    def _send(self, status: int, answer: Any) -> None:
        content = msgspec.json.encode(answer)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _refuse(self, code: int, kind: str, message: str) -> None:
        self._send(code, {"error": {"message": message, "type": kind, "code": code}})

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def rest_catalog(folder: Path) -> Iterator[S3]:
    """A catalog whose database is in a folder; it finds S3 as the environment says."""
    with running("-m", __name__, str(folder / "rest.db")) as server:
        yield server


def options_of(server: S3) -> dict[str, str]:
    return {"type": "rest", "uri": server.endpoint, "token": TOKEN}


if __name__ == "__main__":
    Rest(int(sys.argv[2]), sys.argv[1]).serve_forever()
