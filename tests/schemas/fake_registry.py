"""A schema registry of a few lines that follows Confluent's API, and fails as a test says.

    with FakeRegistry() as registry:
        registry.add("orders-value", schema)          a version; returns its id
        registry.failures += [503, "hang up"]         the next two requests fail so, later ones do not
    registry.failures += ["cut off", "drip"]      half of an answer; one that goes on with a byte now and then
    registry.failures += [event]                  the next one is answered when the event is set
        registry.stop(); registry.start()             it is away, and back at the same address

`tests/interop/test_schema_registry.py` has the same conversations with a real registry.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote


class FakeRegistry:
    """`account`: user:password that it demands. tls: certificate and key."""

    def __init__(self, account: str = "", tls: tuple[Path, Path] | None = None) -> None:
        self.account = account
        self.tls = tls
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.failures: list[int | str | threading.Event] = []
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        self._port = 0
        self._server: ThreadingHTTPServer | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://localhost:{self._port}"

    def start(self) -> None:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.answer(self)

            do_POST = do_GET

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_address[1]
        if self.tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self.tls)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def add(self, subject: str, schema: Any, kind: str = "AVRO", references: list[Any] | None = None) -> int:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        found = {"schema": text, "schemaType": kind, "references": references or []}
        known = [schema_id for schema_id, each in self.schemas.items() if each == found]
        schema_id = known[0] if known else len(self.schemas) + 1
        self.schemas[schema_id] = found
        versions = self.subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return schema_id

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.asked.append(f"{handler.command} {handler.path}")
        self.headers.append(dict(handler.headers))
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        if self.failures:
            failure = self.failures.pop(0)
            if isinstance(failure, threading.Event):
                failure.wait()
                return self._route(handler, _path(handler.path), {})
            if failure == "hang up":
                handler.close_connection = True
                return None
            if failure in ("cut off", "drip"):
                return _send_a_part(handler, drips=failure == "drip")
            if isinstance(failure, str):
                return self._send(handler, 200, failure.encode())
            return self._refuse(handler, failure, failure * 100 + 1)
        expected = "Basic " + base64.b64encode(self.account.encode()).decode()
        if self.account and handler.headers.get("Authorization") != expected:
            return self._refuse(handler, 401, 401)
        return self._route(handler, _path(handler.path), json.loads(body) if body else {})

    def _route(self, handler: BaseHTTPRequestHandler, path: list[str], asked: dict[str, Any]) -> None:
        match handler.command, path:
            case "GET", ["schemas", "ids", schema_id]:
                known = self.schemas.get(int(schema_id))
                return self._say(handler, known) if known else self._refuse(handler, 404, 40403)
            case "GET", ["subjects", subject, "versions", version]:
                return self._version(handler, subject, version)
            case "POST", ["subjects", subject, "versions"]:
                if "not a schema" in asked["schema"]:
                    return self._refuse(handler, 422, 42201)
                kind, references = asked.get("schemaType", "AVRO"), asked.get("references", [])
                return self._say(handler, {"id": self.add(subject, asked["schema"], kind, references)})
            case "POST", ["subjects", subject]:
                for number, known_id in enumerate(self.subjects.get(subject, []), 1):
                    if self.schemas[known_id]["schema"] == asked["schema"]:
                        return self._say(handler, {"subject": subject, "version": number, "id": known_id})
                return self._refuse(handler, 404, 40403)
        return self._send(handler, 404, b"<html>no such page</html>")

    def _version(self, handler: BaseHTTPRequestHandler, subject: str, version: str) -> None:
        ids = self.subjects.get(subject, [])
        number = len(ids) if version == "latest" else int(version)
        if not 0 < number <= len(ids):
            return self._refuse(handler, 404, 40402 if ids else 40401)
        schema_id = ids[number - 1]
        return self._say(handler, {"subject": subject, "version": number, "id": schema_id} | self.schemas[schema_id])

    def _say(self, handler: BaseHTTPRequestHandler, found: dict[str, Any]) -> None:
        shown = {name: value for name, value in found.items() if (name, value) != ("schemaType", "AVRO") and value}
        self._send(handler, 200, json.dumps(shown).encode())

    def _refuse(self, handler: BaseHTTPRequestHandler, status: int, code: int) -> None:
        self._send(handler, status, json.dumps({"error_code": code, "message": f"code {code}"}).encode())

    def _send(self, handler: BaseHTTPRequestHandler, status: int, body: bytes) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)


def _send_a_part(handler: BaseHTTPRequestHandler, *, drips: bool) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    handler.close_connection = True
    with suppress(OSError):  # the client goes away
        handler.wfile.write(b'{"schema":')
        while drips:
            handler.wfile.write(b" ")
            time.sleep(0.01)


def _path(path: str) -> list[str]:
    return [unquote(part) for part in path.partition("?")[0].strip("/").split("/")]
