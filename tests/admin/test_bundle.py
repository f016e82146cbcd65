"""The texts of a bundle; tests/cli/operator/test_bundle_command.py has real processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.bundle import Bundle
from sparrowmq.testing import Cluster


def now_ms() -> int:
    return 0


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("haSecret=abcd", "haSecret=(hidden)"),
        ("tls.server.keyPassword = abcd", "tls.server.keyPassword = (hidden)"),
        ('{"secretKey": "abcd", "topic": "t"}', '{"secretKey": "(hidden)", "topic": "t"}'),
        ("token: abcd; next", "token: (hidden); next"),
        ("haSecret=(hidden)", "haSecret=(hidden)"),
        (r'{"told": "{\"password\": \"abcd\"}"}', r'{"told": "{\"password\": \"(hidden)\"}"}'),
        (r"haSecret=ab\cd", "haSecret=(hidden)"),
        ("metricsOtlpEndpoint=http://me:ab:cd@h:1/v1", "metricsOtlpEndpoint=http://me:(hidden)@h:1/v1"),
        ("http://host:4318/v1/metrics", "http://host:4318/v1/metrics"),
        ("the account's own key mine is here", "the account's own key (hidden) is here"),
        ("accessKey=billing", "accessKey=billing"),
        ("sparrowmq_tokens 5", "sparrowmq_tokens 5"),
    ],
)
async def test_secrets_are_hidden_by_their_names_and_the_one_of_the_account(text: str, hidden: str) -> None:
    async with Admin("127.0.0.1:9") as admin:
        found = Bundle(admin.servers, ["mine"], now_ms)
        found._put("a.txt", text)
    assert found.texts == {"a.txt": hidden}


async def test_what_the_time_does_not_suffice_for_is_named(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster, Admin(cluster.namesrv) as admin:
        found = Bundle(admin.servers, [], now_ms)
        await found.gather(limit_s=0)
    assert "too long" in found.missing["doctor.json"] and "doctor.json: " in found.texts["MISSING.txt"]


async def test_routes_and_brokers_are_in_it(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster, Admin(cluster.namesrv) as admin:
        await admin.create_topic("orders", queues=3)
        found = Bundle(admin.servers, [], now_ms)
        await found.gather()
    routes = json.loads(found.texts["routes.json"])
    assert routes["orders"]["queueDatas"][0]["readQueueNums"] == 3
    assert json.loads(found.texts["brokers.json"])[0]["name"] == "broker-0"
