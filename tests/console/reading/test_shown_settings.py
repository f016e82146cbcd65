"""Secrets in the settings of servers, as Apache's servers send them."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

import sparrowmq.console
from sparrowmq.console.cluster_view import HIDDEN, broker_settings, hidden, namesrv_settings

# What a broker of Apache 5.3 answers to GET_BROKER_CONFIG, shortened.
APACHE = {
    "brokerName": "broker-a",
    "innerClientAuthenticationCredentials": '{"accessKey":"root","secretKey":"8Fh2kQz0pLw"}',
    "initAuthenticationUser": '{"username":"root","password":"8Fh2kQz0pLw"}',
    "metricsGrpcExporterHeader": "Authorization:Bearer 8Fh2kQz0pLw",
    "authConfigPath": '{"password":"8Fh2kQz0pLw"}',
    "haSecret": "",
    "listenPort": "10911",
}


class Answering:
    async def ask(self, address, request, *, timeout_factor=1):
        return SimpleNamespace(body="\n".join(f"{key}={value}" for key, value in APACHE.items()).encode())

    async def ask_namesrv(self, request, address):
        return await self.ask(address, request)


@pytest.mark.parametrize("read", [broker_settings, namesrv_settings])
async def test_no_visitor_sees_secrets_that_a_server_sends(read):
    shown = await read(Answering(), "127.0.0.1:1")
    kept = {"brokerName": "broker-a", "haSecret": "", "listenPort": "10911"}
    assert shown == dict.fromkeys(APACHE, HIDDEN) | kept


def test_a_new_secret_is_hidden_where_the_console_says_what_changes():
    assert hidden("haSecret", "x") == HIDDEN and hidden("haSecret", "") == "" and hidden("port", "1") == "1"


def test_other_files_of_the_console_read_settings_only_here():
    console = Path(sparrowmq.console.__path__[0])
    files = {file.name: file.read_text() for file in console.rglob("*.py") if file.name != "cluster_view.py"}
    asking = re.compile(
        r"operations.*import.*\b(broker_settings|namesrv_settings|broker_operations|namesrv_operations)"
    )
    assert [name for name, text in files.items() if asking.search(text)] == []
