"""The commands of RocketMQ 5's quick start as people type them, and the keys of rmq-proxy.json."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.cli.servers import proxy
from sparrowmq.cli.servers.broker_processes import broker_command
from sparrowmq.cli.servers.serve import broker as mqbroker
from sparrowmq.cli.servers.serve import namesrv as mqnamesrv
from sparrowmq.cli.servers.settings_sources import ProxyFile, merge, sources
from sparrowmq.errors import ConfigError
from sparrowmq.mqproxy.proxy import ProxySettings
from tests.broker.grpc_port.grpc_client import GrpcClient, channel_to
from tests.cli.servers.test_broker_processes import GIVEN
from tests.interop.apache import free_ports

DEFAULT = {"rocketMQClusterName": "DefaultCluster"}
INNER = {"innerClientAuthenticationCredentials": '{"accessKey":"operator","secretKey":"abcdefgh"}'}


def script(name: str) -> tuple[str, str]:
    return "-c", f"from sparrowmq.cli.scripts import {name}; {name}()"


def written(folder: Path, **keys: Any) -> str:
    file = folder / "rmq-proxy.json"
    file.write_text(json.dumps(DEFAULT | keys))
    return str(file)


async def route_code(line: str) -> int:
    """The code with which the gRPC port that a server's line names answers a question."""
    async with channel_to(re.findall(r"127\.0\.0\.1:\d+", line)[-1]) as channel:
        answer = await GrpcClient(channel).call("QueryRoute", topic={"name": "absent"})
        code: int = answer.status.code
        return code


@pytest.mark.parametrize("words", ["--enable-proxy -pc JSON", "-pm local -bc CONF -pc JSON"])
async def test_a_broker_with_a_grpc_port_starts_by_apaches_commands(
    start: Callable[..., Any], namesrv: Any, tmp_path: Path, words: str
) -> None:
    (port,) = free_ports(1)
    conf = tmp_path / "broker.conf"
    conf.write_text(f"listenPort=0\nbrokerName=of-the-file\nstorePathRootDir={tmp_path}/store\n")
    file = written(tmp_path, grpcServerPort=port, proxyMode="cluster", grpcBossLoopNum=1)
    given = words.replace("CONF", str(conf)).replace("JSON", file).split()
    program = "mqproxy" if "-pm" in given else "mqbroker"
    if program == "mqbroker":
        given += ["-c", str(conf), "autoCreateTopicEnable=false", "brokerClusterName=East"]
    server = start("-n", namesrv.address, *given, program=script(program)).ready()
    assert server.line.endswith(f" and name server is {namesrv.address}, gRPC at 127.0.0.1:{port}\n")
    assert "The broker[of-the-file, " in server.line and await route_code(server.line) == 40402
    log = server.stop()[1]
    assert f"{file}: these keys have no effect here: grpcBossLoopNum, rocketMQClusterName\n" in log


async def test_mqproxy_starts_with_apaches_file(start: Callable[..., Any], namesrv: Any, tmp_path: Path) -> None:
    (grpc,) = free_ports(1)
    file = written(tmp_path, grpcServerPort=grpc, remotingListenPort=8080, grpcThreadPoolNums=16)
    server = start("-n", namesrv.address, "-pc", file, program=script("mqproxy"))
    line = server.process.stdout.readline()
    assert f"127.0.0.1:{grpc}" in line
    assert await route_code(line) == 50002  # no broker is registered
    log = server.stop()[1]
    assert f"{file}: mqproxy has no remotingListenPort: remoting clients connect to the brokers\n" in log
    assert f"{file}: these keys have no effect here: grpcThreadPoolNums, rocketMQClusterName\n" in log


def test_without_a_file_the_grpc_port_of_a_broker_is_apaches_unless_another_is_set(tmp_path: Path) -> None:
    def port(*words: str) -> str:
        shown = CliRunner().invoke(mqbroker, ["-p", *words])
        assert shown.exit_code == 0, shown.output
        return str(re.findall(r"^grpcServerPort=(.*)$", shown.stdout, re.MULTILINE)[0])

    conf = tmp_path / "broker.conf"
    conf.write_text("grpcServerPort=8085\n")
    assert port("--enable-proxy") == "8081" and port("--enable-proxy", "grpcServerPort=8084") == "8084"
    assert port("--enable-proxy", "--configFile", str(conf)) == "8085"
    assert port("--enable-proxy", "-c", str(conf), "-pc", written(tmp_path, grpcServerPort=8086)) == "8086"


def test_settings_without_an_option_count_for_name_servers_too() -> None:
    shown = CliRunner().invoke(mqnamesrv, ["-p", "--namesrvAddr", "ignored:1", "listenPort=9877"])
    assert "listenPort=9877" in shown.stdout


def test_each_of_several_brokers_gets_them() -> None:
    given = GIVEN | {"enable_proxy": True, "proxy_file": "rmq-proxy.json", "pairs": ("fileReservedTime=48",)}
    words = broker_command(BrokerSettings(name="x", grpc_port=8081), given, 1)
    assert "--enable-proxy" in words and words[words.index("-pc") + 1] == "rmq-proxy.json"
    assert {"fileReservedTime=48", "grpcServerPort=8082"} <= set(words)


def test_the_keys_of_a_broker(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    certificates = {"tlsTestModeEnable": False, "tlsCertPath": "/c.pem", "tlsKeyPath": "/k.pem"}
    users = {"authenticationEnabled": True, "authorizationEnabled": True, **INNER}
    file = written(tmp_path, namesrvAddr="a:1", grpcServerPort=8082, **certificates, **users)
    settings = merge(BrokerSettings, sources(None, {}, [], {}, file))
    assert (settings.namesrv, settings.grpc_port) == (("a:1",), 8082)
    assert (str(settings.certificate), str(settings.key), settings.tls_test_mode) == (
        "/c.pem",
        "/k.pem",
        False,
    )
    assert settings.authentication and settings.authorization
    assert settings.inner_credentials == INNER["innerClientAuthenticationCredentials"]
    assert caplog.messages == [f"{file}: these keys have no effect here: rocketMQClusterName"]


def test_a_certificate_does_not_count_in_javas_test_mode(tmp_path: Path) -> None:
    file = ProxyFile.load(written(tmp_path, tlsTestModeEnable=True, tlsCertPath="/c.pem", tlsKeyPath="/k.pem"))
    assert file.broker_settings() == {} == file.options()


def settings_of_proxy(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[ProxySettings, str | None]:
    """The settings with which `mqproxy` starts, and its name servers."""
    made = []

    def run(build: Callable[[], Any], _ready: object) -> None:
        proxy = build()
        made.append((proxy._settings, proxy._connect.args[0]))
        sys.exit(0)

    monkeypatch.setattr(proxy, "run", run)
    done = CliRunner().invoke(proxy.proxy, words, catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    return made[0]


def test_the_keys_of_mqproxy_count_unless_an_option_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    certificate = {"tlsTestModeEnable": False, "tlsCertPath": str(tmp_path), "tlsKeyPath": str(tmp_path)}
    metrics = {"metricsExporterType": "PROM", "metricsPromExporterPort": 5558}
    file = written(
        tmp_path,
        namesrvAddr="a:1",
        grpcServerPort=8082,
        authenticationEnabled=True,
        **INNER,
        **metrics,
        **certificate,
    )
    settings, namesrv = settings_of_proxy(monkeypatch, "-pc", file)
    assert (namesrv, settings.port, settings.metrics_port, settings.key) == ("a:1", 8082, 5558, tmp_path)
    assert settings.credentials is not None and settings.credentials.access_key == "operator"
    assert caplog.messages == [f"{file}: these keys have no effect here: rocketMQClusterName"]
    settings, namesrv = settings_of_proxy(monkeypatch, "-pc", file, "--port", "8083", "-n", "b:1")
    assert (namesrv, settings.port) == ("b:1", 8083)


def test_metrics_of_mqproxy_need_their_exporter(tmp_path: Path) -> None:
    assert ProxyFile.load(written(tmp_path, metricsPromExporterPort=5558)).options() == {}
    assert ProxyFile.load(written(tmp_path, metricsExporterType="PROM")).options() == {"metrics_port": "5557"}


@pytest.mark.parametrize(
    ("program", "words", "advice"),
    [
        (proxy.proxy, "-pc AUTH -n a:1", "authenticationEnabled=true needs an account"),
        (proxy.proxy, "-pc /nowhere.json -n a:1", "check the path of -pc"),
        (proxy.proxy, "-pm local --host 0.0.0.0", "--host: -pm local starts a broker"),
        (mqbroker, "-pc AUTH", "add --enable-proxy"),
        (mqbroker, "listenPort", "is not key=value"),
    ],
)
def test_a_wrong_command_line_ends_with_2_and_advice(tmp_path: Path, program: Any, words: str, advice: str) -> None:
    file = written(tmp_path, authenticationEnabled=True)
    done = CliRunner().invoke(program, words.replace("AUTH", file).split())
    assert done.exit_code == 2 and advice in done.stderr, done.stderr


@pytest.mark.parametrize("text", ["", "[1]", "grpcServerPort=1", "{"])
def test_a_file_that_is_no_object_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "rmq-proxy.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match="must be JSON"):
        ProxyFile.load(str(file))
