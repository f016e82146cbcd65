"""sparrowmq.spark.pipelines.target_topics: pipelines ask a cluster by the keys that source and sink have."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("pyspark")

from sparrowmq.admin.admin import Admin
from sparrowmq.spark.pipelines import lag
from sparrowmq.spark.pipelines import target_topics as topics
from sparrowmq.spark.pipelines.target_topics import admin_of
from tests.broker.test_over_tls import Closed, closed

__all__ = ["closed"]


def test_topics_are_made_and_groups_looked_at_by_the_options_of_tls(closed: Closed) -> None:
    options = {
        "tls.enable": "true",
        "tls.client.trustCertPath": str(closed.trust),
        "tls.client.certPath": str(closed.client.certificate),
        "tls.client.keyPath": str(closed.client.key),
    }
    assert topics.create_topics(topics.sink_options(options, closed.namesrv), {"made": 2}, None) == ["made"]

    async def commit() -> None:
        async with Admin(closed.namesrv, tls=closed.file) as admin:
            await admin.create_group("billing")
            await admin.reset("billing", "made", "earliest")

    asyncio.run(commit())
    assert lag(["billing"], name_server=closed.namesrv, options=options).written == 1


def test_a_security_token_goes_along(peer):
    peer.store("T", 0, [])
    options = peer.source(topic="T", accessKey="me", secretKey="mine", securityToken="t")

    async def ask():
        async with admin_of(options) as admin:
            await admin.servers.route("T")

    asyncio.run(ask())
    _, fields = peer.asked[-1]
    assert (fields["AccessKey"], fields["SecurityToken"]) == ("me", "t")
