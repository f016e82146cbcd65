"""What goes wrong with servers that are no part of the field: a name server with accounts, a broker, `mqproxy`.

They are as those in causes.py, but game days leave them out: doctor does not know `mqproxy`, and the cluster of the
field has accounts at one broker only.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Final

from tests.conditions.cause import Cause, Course, cause, program
from tests.conditions.field import ACCOUNTS, ADMIN, OVER_S, Field, FieldBroker, FieldServer, Remedy, until
from tests.interop.apache import free_ports
from tests.interop.child import scratch
from tests.interop.servers import OurBroker, OurNamesrv

OTHERS: Final[list[Cause]] = []
_OF_BROKER: Final = """  - accessKey: broker-b-of-all
    secretKey: '12345678'
    broker: true
"""
_PRODUCERS: Final = """
import asyncio, sys
from sparrowmq.grpc.wire_types import ClientType, message_class
from tests.broker.grpc_port.grpc_client import GrpcClient, channel_to
async def main():
    async with channel_to(sys.argv[1]) as channel:
        for name in "ab":
            client = GrpcClient(channel, name)
            await client.telemetry()
            command = message_class("TelemetryCommand")()
            command.settings.client_type = ClientType.PRODUCER
            for number in range(300):
                command.settings.publishing.topics.add(name=f"{name}{number}")
            await client._stream.write(command.SerializeToString())
            await client._stream.read()
        await asyncio.Event().wait()
asyncio.run(main())
"""
_VALUE: Final = """
from sparrowmq.cli.scripts import mqadmin
mqadmin()
"""


class FieldNamesrv(FieldServer):
    """A name server with a folder for its values."""

    def __init__(self, name: str, folder: Path, accounts: str = "") -> None:
        home = scratch(name)
        port, metrics = free_ports(2)
        self.name = name
        self.address = self.namesrv = f"127.0.0.1:{port}"
        self.metrics = f"http://127.0.0.1:{metrics}"
        self.values = folder / "values"
        self.accounts = folder / "accounts.yml"
        self.accounts.write_text(accounts)
        settings = {
            "listenPort": port,
            "kvConfigPath": self.values / "kvConfig.json",
            "metricsExporterType": "PROM",
            "metricsPromExporterPort": metrics,
        }
        if accounts:
            settings |= {"aclEnable": "true", "aclFile": self.accounts}
        conf = folder / "namesrv.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        super().__init__(home, [sys.executable, "-m", "sparrowmq", "namesrv", "-c", str(conf)])

    def _wait_ready(self) -> None:
        self.wait_for("boot success")


class FieldProxy(FieldServer):
    """An `mqproxy`."""

    namesrv = ""

    def __init__(self, name: str, namesrv: str, **environment: str) -> None:
        port, metrics = free_ports(2)
        self.name = name
        self.address = f"127.0.0.1:{port}"
        self.metrics = f"http://127.0.0.1:{metrics}"
        command = [sys.executable, "-m", "sparrowmq", "proxy", "-n", namesrv, "--port", str(port)]
        super().__init__(scratch(name), [*command, "--metrics-port", str(metrics)], **environment)

    def _wait_ready(self) -> None:
        self.wait_for("the proxy serves")


def _place(field: Field, name: str) -> Path:
    place = field.folder / f"{name}-{time.time_ns()}"
    place.mkdir()
    return place


def _is_over(kind: str, server: FieldServer) -> None:
    until(lambda: f"condition {kind} is over" in server.said_all(), OVER_S, f"{kind} is not over")


@cause("secret_short", "broker-s", among=OTHERS)
def a_secret_that_can_be_guessed(field: Field) -> Course:
    broker = FieldBroker("broker-s", field.namesrv, _place(field, "broker-s"), {"haSecret": "guess me"})
    field.add(broker)
    remedy = yield
    assert "haSecret has 8 characters" in remedy.what
    remedy.names("`openssl rand -hex 24`", "restart")
    broker.stop()
    broker.conf.write_text(broker.conf.read_text().replace("guess me", secrets.token_hex(24)))
    broker.start_again()
    until(lambda: not broker.conditions, OVER_S, "it is not over")
    broker.stop()


@cause("any_broker_name", "namesrv-g", among=OTHERS)
def an_account_that_may_register_any_broker(field: Field) -> Course:
    text = ACCOUNTS + _OF_BROKER
    server = FieldNamesrv("namesrv-g", _place(field, "namesrv-g"), text)
    field.add(server)
    remedy = yield
    assert "broker-b-of-all" in remedy.what
    remedy.names("`brokerNames: [NAME]`", "without a restart")
    server.accounts.write_text(text + "    brokerNames: [broker-b]\n")
    _is_over("any_broker_name", server)
    server.stop()


@cause("values_not_saved", "namesrv-v", among=OTHERS)
def a_name_server_that_cannot_write_its_values(field: Field) -> Course:
    server = FieldNamesrv("namesrv-v", _place(field, "namesrv-v"))
    field.add(server)
    server.values.write_text("")
    words = ("-n", server.address, "-s", "OURS", "-k", "key", "-v", "value")
    assert program(_VALUE, "updateKvConfig", *words).wait(60) != 0
    remedy = yield
    remedy.names("kvConfigPath", "see that there is room")
    server.values.unlink()
    _is_over("values_not_saved", server)
    server.stop()


@cause("client_certificate", "broker-k", among=OTHERS)
def a_client_certificate_that_expires_soon(field: Field) -> Course:
    place = _place(field, "broker-k")
    broker = FieldBroker("broker-k", field.namesrv, place, {"tls.enable": "true", **_showing(field, place)})
    field.add(broker)
    _renew(field, place, broker, (yield))
    broker.stop()


@cause("client_certificate", "proxy-k", among=OTHERS)
def a_client_certificate_of_mqproxy_that_expires_soon(field: Field) -> Course:
    place = _place(field, "proxy-k")
    file = place / "tls.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in _showing(field, place).items()))
    proxy = FieldProxy("proxy-k", field.namesrv, SPARROWMQ_TLS_CONFIG=str(file))
    field.add(proxy)
    _renew(field, place, proxy, (yield))
    proxy.stop()


def _showing(field: Field, place: Path) -> dict[str, object]:
    """Return the settings of a server that shows a client's certificate which ends in five days."""
    field.run("secure", "init", str(place / "ca"), "--client", "program", "--days", "5")
    for name in ("certificate.pem", "key.pem"):
        shutil.copy(place / "ca" / "program" / name, place / name)
    return {
        "tls.client.authServer": "false",
        "tls.client.certPath": place / "certificate.pem",
        "tls.client.keyPath": place / "key.pem",
    }


def _renew(field: Field, place: Path, server: FieldServer, remedy: Remedy) -> None:
    assert f"{place / 'certificate.pem'} ends at " in remedy.what
    remedy.names("and copy it here", "without a restart")
    field.follow(remedy, "renew", DIR=str(place / "ca"))
    shutil.copy(place / "ca" / "program" / "certificate.pem", place)
    _is_over("client_certificate", server)


@cause("users_not_read", "proxy-u", among=OTHERS)
def a_broker_that_gives_mqproxy_no_users(field: Field) -> Course:
    first = {"username": ADMIN[0], "password": ADMIN[1]}
    settings = {"authenticationEnabled": "true", "initAuthenticationUser": json.dumps(first)}
    account = {"ROCKETMQ_ACCESS_KEY": ADMIN[0], "ROCKETMQ_SECRET_KEY": ADMIN[1]}
    with OurNamesrv() as names, OurBroker(names.address, _place(field, "broker-u"), settings) as broker:
        os.kill(broker.pid, signal.SIGSTOP)  # mqproxy asks at its start, and then every five seconds
        proxy = FieldProxy("proxy-u", names.address, **account)
        field.add(proxy)
        remedy = yield
        assert "all calls for it are denied" in remedy.what
        remedy.names("start that broker")
        os.kill(broker.pid, signal.SIGCONT)
        _is_over("users_not_read", proxy)
        proxy.stop()


@cause("transactions_not_asked", "proxy-t", among=OTHERS)
def producers_of_too_many_topics(field: Field) -> Course:
    proxy = FieldProxy("proxy-t", field.namesrv)
    field.add(proxy)
    producers = program(_PRODUCERS, proxy.address)
    remedy = yield
    assert "2 clients produce for more than 500 topics" in remedy.what
    remedy.names("spread the clients over several mqproxy")
    producers.terminate()
    producers.wait(10)
    _is_over("transactions_not_asked", proxy)
    proxy.stop()
