"""sparrowmq.spark.register: a session that knows the source."""

import pytest

pytest.importorskip("pyspark")

from sparrowmq.spark.register import register, session

pytestmark = pytest.mark.spark


def test_a_session_has_the_settings_it_was_given(spark):
    assert (
        session(settings={"spark.sql.adaptive.enabled": "false"}).conf.get("spark.sql.adaptive.enabled")
        == "false"
    )
    assert spark.range(3).count() == 3


def test_a_registered_source_is_found(spark, peer):
    register(spark)
    peer.store("T", 0, [b"x"] * 3)
    options = {"nameServer": peer.address, "topic": "T", "columns": "body"}
    assert spark.read.format("rocketmq").options(**options).load().count() == 3
