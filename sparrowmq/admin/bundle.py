"""The texts of all servers that somebody needs to find a fault later, without secrets.

    MISSING.txt                        the servers and texts that are not here, and why
    doctor.json                        the findings, with their remedies
    brokers.json, lost.json            the brokers, and those that died
    routes.json                        the route of each topic
    namesrv/HOST-PORT/...              settings, log.txt, stacks.txt, process.txt, metrics.txt, its brokers
    broker/NAME-ID/...                 the same, with status.json (figures and conditions), topics.json, groups.json

All servers are asked at once. One that does not answer its first question is asked nothing more.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec

from sparrowmq.admin import catalogue, doctor
from sparrowmq.admin.servers import BrokerPlace, Servers, utc
from sparrowmq.errors import NetworkError, SparrowError

GATHER_LIMIT_S: Final = 25.0
HIDDEN_TEXT: Final = "(hidden)"
_MOST_ROUTES: Final = 1000
_REQUESTS_AT_ONCE: Final = 32
_METRICS_CHUNK_BYTES: Final = 16 << 20
_METRICS_SETTING: Final = "metricsExporterType"
# `brokerSecretKey=...`, `"haSecret": "..."`, `password: ...`, in settings and logs; `\"password\":\"...\"` in JSON
# inside JSON; and `https://user:password@host`.
_NAMED_SECRET: Final = re.compile(
    r"""((?:secret|password|passwd|token|credential)[\w.-]*\\*["']?\s*[=:]\s*\\*["']?)"""
    r"""(?!\(hidden\))(?:[^\s"',;}\\]|\\(?!["']))+""",
    re.IGNORECASE,
)
_URL_SECRET: Final = re.compile(r"(://[^/\s:@]*:)(?!\(hidden\)@)[^/\s@]+(?=@)")
Texts: TypeAlias = dict[str, str]
Work: TypeAlias = Callable[[], Awaitable[object]]


class Bundle:
    """Gathers the texts by path, without `secrets`, and the reasons by what is missing."""

    def __init__(self, servers: Servers, secrets: Iterable[str], now_ms: Callable[[], int]) -> None:
        self.texts: Texts = {}
        self.missing: Texts = {}
        self._servers = servers
        self._secrets = [secret for secret in secrets if secret]
        self._now_ms = now_ms

    async def gather(self, limit_s: float = GATHER_LIMIT_S) -> None:
        """Ask all servers. Answers that do not come in time are noted as missing."""
        tasks: dict[str, Work] = {"doctor.json": self._doctor, "brokers.json": self._brokers}
        for address in self._servers.network.name_servers.addresses:
            path = f"namesrv/{_file_name(address)}"
            tasks[path] = partial(self._namesrv, path, address)
        deadline_s = asyncio.get_running_loop().time() + limit_s
        places: list[BrokerPlace] = []
        try:
            async with asyncio.timeout_at(deadline_s):
                places = await self._servers.brokers()
        except (SparrowError, TimeoutError) as error:
            self.missing["broker"] = str(error) or "no name server answered in time"
        for place in places:
            for number, address in place.addresses.items():
                path = f"broker/{_file_name(place.name)}-{number}"
                tasks[path] = partial(self._broker, path, address)
        await asyncio.gather(*(self._run_in_time(name, task, deadline_s) for name, task in tasks.items()))
        lines = [f"{name}: {reason}\n" for name, reason in sorted(self.missing.items())]
        self._put("MISSING.txt", "".join(lines) or "nothing is missing\n")

    async def _run_in_time(self, name: str, work: Work, deadline_s: float) -> None:
        try:
            async with asyncio.timeout_at(deadline_s):
                await work()
        except TimeoutError:
            self.missing[name] = "its answers took too long, so some are missing"
        except SparrowError as error:
            self.missing[name] = str(error)

    async def _doctor(self) -> None:
        findings = await doctor.examine(self._servers, None, None, self._now_ms)
        self._put_json(
            "doctor.json", [{**_to_builtins(finding), "verdict": finding.verdict.value} for finding in findings]
        )

    async def _brokers(self) -> None:
        self._put_json("brokers.json", [_to_builtins(each) for each in await self._servers.brokers()])
        lost = await self._servers.lost()
        self._put_json("lost.json", {name: _to_builtins(each) for name, each in lost.items()})
        for name, each in lost.items():
            self.missing[f"broker/{_file_name(name)}"] = f"it died {utc(each.since_ms)} at {each.address}"
        topics = sorted(await catalogue.topic_names(self._servers))
        limit = asyncio.Semaphore(_REQUESTS_AT_ONCE)

        async def route(topic: str) -> Any:
            async with limit:
                return _to_builtins(await catalogue.topic_route(self._servers, topic))

        routes = await asyncio.gather(*map(route, topics[:_MOST_ROUTES]))
        self._put_json("routes.json", dict(zip(topics, routes, strict=False)))
        if len(topics) > _MOST_ROUTES:
            self.missing["routes.json"] = f"the routes of {len(topics) - _MOST_ROUTES} of {len(topics)} topics"

    async def _namesrv(self, path: str, address: str) -> None:
        servers = self._servers
        table = await catalogue.cluster_table(servers, address)
        self._put_json(f"{path}/brokers.json", _to_builtins(table))
        await self._add_server(
            path,
            address,
            partial(catalogue.namesrv_settings, servers, address),
            partial(catalogue.namesrv_diagnosis, servers, address),
        )

    async def _broker(self, path: str, address: str) -> None:
        servers = self._servers
        self._put_json(f"{path}/status.json", await catalogue.broker_figures(servers, address))
        await self._add_server(
            path,
            address,
            partial(catalogue.broker_settings, servers, address),
            partial(catalogue.broker_diagnosis, servers, address),
        )
        tables: dict[str, Work] = {
            f"{path}/topics.json": partial(catalogue.topic_table, servers, address),
            f"{path}/groups.json": partial(catalogue.group_table, servers, address),
        }
        for name, ask in tables.items():
            table = await self._ask_for_part(name, ask)
            if table is not None:
                self._put_json(name, _to_builtins(table))

    async def _add_server(
        self,
        path: str,
        address: str,
        settings: Callable[[], Awaitable[dict[str, str]]],
        diagnosis: Callable[[], Awaitable[dict[str, str]]],
    ) -> None:
        known_settings = await self._ask_for_part(f"{path}/settings.properties", settings) or {}
        lines = [f"{key}={value}\n" for key, value in sorted(known_settings.items())]
        self._put(f"{path}/settings.properties", "".join(lines))
        for name, text in (await self._ask_for_part(f"{path}/log.txt, stacks.txt", diagnosis) or {}).items():
            self._put(f"{path}/{_file_name(name)}.txt", text)
        if known_settings.get(_METRICS_SETTING, "").upper() == "PROM":
            port = known_settings.get("metricsPromExporterPort", "5557")
            ask = partial(_metrics_page, address, port, self._servers.timeout_s)
            text = await self._ask_for_part(f"{path}/metrics.txt", ask)
            if text is not None:
                self._put(f"{path}/metrics.txt", text)
        else:
            self._put(f"{path}/metrics.txt", f"the server serves no metrics: {_METRICS_SETTING} is not PROM\n")

    async def _ask_for_part(self, path: str, ask: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await ask()
        except SparrowError as error:
            self.missing[path] = str(error)
            return None

    def _put_json(self, path: str, value: object) -> None:
        self._put(path, json.dumps(value, indent=1, ensure_ascii=False, default=str))

    def _put(self, path: str, text: str) -> None:
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN_TEXT)
        text = _URL_SECRET.sub(rf"\1{HIDDEN_TEXT}", text)
        self.texts[path] = _NAMED_SECRET.sub(rf"\1{HIDDEN_TEXT}", text)


def _to_builtins(value: object) -> Any:
    return msgspec.to_builtins(value, str_keys=True)


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]", "_", name)


async def _metrics_page(address: str, port: str, timeout_s: float) -> str:
    """Return the metrics of the server at an address. Raises: NetworkError."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                writer.write(f"GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
                response = await reader.read(_METRICS_CHUNK_BYTES)
                while chunk := await reader.read(_METRICS_CHUNK_BYTES):
                    response += chunk
            finally:
                writer.close()
    except (OSError, ValueError) as error:
        raise NetworkError(f"no metrics at {host}:{port}: {error or 'no answer in time'}") from None
    return response.partition(b"\r\n\r\n")[2].decode(errors="replace")
