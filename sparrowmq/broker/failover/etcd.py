"""An etcd client over the JSON gateway: keys with versions, leases, and conditional changes.

    POST /v3/kv/range            the keys below a prefix, each with its value and its version (mod_revision)
    POST /v3/kv/txn              put and delete, if some keys still have the version that was read; 0: does not exist
    POST /v3/lease/grant         a lease: when it ends, the keys that were put with it are deleted
    POST /v3/lease/keepalive     ... which lasts its whole time again, from now on
    POST /v3/lease/revoke        ... which ends now
    POST /v3/auth/authenticate   a token for a user, sent with each request

Keys and values are base64, numbers are texts, and zeros are left out. Each request has its own connection, so no
request waits for an answer that never comes. The client tries the endpoints in turn, beginning with the one that
answered last. A change may have happened even if no answer came.

With users, a client exchanges its name and password for a token. The token expires after a while, or when etcd
restarts; then the client asks for another one. With TLS, etcd must show a certificate for the name in etcdEndpoints.
Each new connection gets the files of TLS as they are then.
Source: https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway, and the answers of etcd 3.4.23.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import h11
import msgspec

from sparrowmq.broker.failover.failover_settings import FailoverSettings
from sparrowmq.errors import EtcdFailed
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.hosts import split_address
from sparrowmq.remoting.tls.contexts import ClientContext, trusting_context

_UNAUTHENTICATED: Final = 16  # a status code of gRPC
# Etcd's text after a change of its users; the gRPC code is that of an invalid argument.
_OLD_RIGHTS: Final = "revision of auth store is old"
_READ_BYTES: Final = 64 << 10
_NOT_FOUND: Final = 5  # a status code of gRPC
# An etcd 3.4 that reads its settings from a file has no gateway by default, and says so by this status.
_NO_GATEWAY: Final = (
    "status 404: this is no etcd, or it does not serve its JSON gateway; correct etcdEndpoints, or set "
    "`enable-grpc-gateway: true` in the configuration file of etcd and restart it"
)


@dataclass(frozen=True, slots=True)
class EtcdAccess:
    """The TLS settings and the user; None for neither."""

    tls: ClientContext | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, settings: FailoverSettings) -> EtcdAccess:
        tls = None
        if settings.etcd_tls:
            tls = trusting_context("etcd.tls", settings.etcd_trust, settings.etcd_certificate, settings.etcd_key)
        return cls(tls, settings.etcd_user, settings.etcd_password)


_NO_TLS_AND_NO_USER: Final = EtcdAccess()


@dataclass(frozen=True, slots=True)
class EtcdValue:
    """The value of a key; `version` changes with each change of the key."""

    value: bytes
    version: int


class Etcd:
    """Requests to one etcd, whose members are `endpoints`, as host:port. All raise EtcdFailed."""

    def __init__(
        self, endpoints: Sequence[str], clock: Clock, timeout_s: float = 1.0, access: EtcdAccess = _NO_TLS_AND_NO_USER
    ) -> None:
        self._endpoints = list(endpoints)
        self._clock = clock
        self._timeout_s = timeout_s
        self._access = access
        self._token = ""

    async def below(self, prefix: str) -> dict[str, EtcdValue]:
        begin = prefix.encode()
        end = begin[:-1] + bytes([begin[-1] + 1])
        answer = await self._ask("kv/range", {"key": _base64(begin), "range_end": _base64(end)})
        return {
            b64decode(row["key"]).decode(): EtcdValue(b64decode(row.get("value", "")), int(row["mod_revision"]))
            for row in answer.get("kvs", ())
        }

    async def change(
        self,
        versions: Mapping[str, int],
        puts: Mapping[str, bytes],
        *,
        leased: Mapping[str, int] | None = None,
        deletes: Sequence[str] = (),
    ) -> bool:
        """Put and delete, if each of these keys still has its version (0: does not exist); return whether it did."""
        compare = [
            {"key": _base64(key), "target": "MOD", "result": "EQUAL", "mod_revision": str(version)}
            for key, version in versions.items()
        ]
        success: list[dict[str, Any]] = [
            {"request_put": {"key": _base64(key), "value": _base64(value), "lease": str((leased or {}).get(key, 0))}}
            for key, value in puts.items()
        ]
        success += [{"request_delete_range": {"key": _base64(key)}} for key in deletes]
        answer = await self._ask("kv/txn", {"compare": compare, "success": success})
        return bool(answer.get("succeeded", False))

    async def grant(self, ttl_s: int) -> int:
        return int((await self._ask("lease/grant", {"TTL": str(ttl_s)}))["ID"])

    async def keep_alive(self, lease: int) -> int:
        """Extend a lease; return its time from now in seconds, 0 if it has ended. Raises: EtcdFailed."""
        answer = await self._ask("lease/keepalive", {"ID": str(lease)})
        return int(answer.get("result", {}).get("TTL", 0))

    async def revoke(self, lease: int) -> None:
        with suppress(KeyError):
            await self._ask("lease/revoke", {"ID": str(lease)})

    async def _ask(self, path: str, question: dict[str, Any]) -> dict[str, Any]:
        """Return an endpoint's answer. Raises: EtcdFailed; KeyError: etcd does not know the lease."""
        body, problems = msgspec.json.encode(question), []
        for endpoint in list(self._endpoints):
            try:
                status, answer = await self._clock.wait_for(self._ask_endpoint(endpoint, path, body), self._timeout_s)
            except (OSError, TimeoutError, UnicodeError, h11.ProtocolError, msgspec.DecodeError) as error:
                problems.append(f"{endpoint}: {_reason(error, self._timeout_s)}")
                self._endpoints.append(self._endpoints.pop(0))  # the next question begins with another one
                continue
            if status == 200:
                return answer
            if answer.get("code") == _NOT_FOUND and path.startswith("lease/"):
                raise KeyError(question)
            default_problem = _NO_GATEWAY if status == 404 else f"status {status}"
            problems.append(f"{endpoint}: {answer.get('error') or default_problem}")
            self._endpoints.append(self._endpoints.pop(0))
        raise EtcdFailed(f"etcd cannot be asked ({'; '.join(problems)})")

    async def _ask_endpoint(self, endpoint: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        access = self._access
        if access.user is None:
            return await _post(endpoint, path, body, access)
        known_token = self._token
        if known_token:
            status, answer = await _post(endpoint, path, body, access, known_token)
            if status == 200 or not wants_new_token(answer):
                return status, answer
        question = msgspec.json.encode({"name": access.user, "password": access.password})
        status, answer = await _post(endpoint, "auth/authenticate", question, access)
        if status != 200:
            return status, answer
        self._token = str(answer.get("token", ""))
        return await _post(endpoint, path, body, access, self._token)


async def _post(
    endpoint: str, path: str, body: bytes, access: EtcdAccess, token: str = ""
) -> tuple[int, dict[str, Any]]:
    """Send one request on its own connection; an error without a JSON object comes as an empty answer."""
    reader, writer = await asyncio.open_connection(*split_address(endpoint), ssl=access.tls)
    try:
        http = h11.Connection(h11.CLIENT)
        headers = [
            ("Host", endpoint),
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
            *([("Authorization", token)] if token else []),
        ]
        request = h11.Request(method="POST", target=f"/v3/{path}", headers=headers)
        for event in (request, h11.Data(body), h11.EndOfMessage()):
            writer.write(http.send(event) or b"")
        status, content = await _answer(http, reader)
        try:
            return status, msgspec.json.decode(content, type=dict[str, Any])
        except msgspec.DecodeError:
            if status == 200:
                raise
            return status, {}  # its status says more than its text, as of a proxy
    finally:
        writer.close()


async def _answer(http: h11.Connection, reader: asyncio.StreamReader) -> tuple[int, bytes]:
    status, content = 0, b""
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(await reader.read(_READ_BYTES))
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            content += event.data
        elif isinstance(event, h11.EndOfMessage):
            return status, content


def _base64(content: bytes | str) -> str:
    return b64encode(content.encode() if isinstance(content, str) else content).decode()


def _reason(error: BaseException, timeout_s: float) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return f"no answer within {timeout_s:g} s"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def wants_new_token(answer: dict[str, Any]) -> bool:
    return answer.get("code") == _UNAUTHENTICATED or _OLD_RIGHTS in str(answer.get("error", ""))
