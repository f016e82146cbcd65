"""Parts that are done in the tests' own process leave their connections for the next ones: here they end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spark.pipelines.conftest import s3, s3_server

__all__ = ["s3", "s3_server"]


@pytest.fixture(autouse=True)
def _forgotten_networks() -> Iterator[None]:
    yield
    from sparrowmq.spark.worker import _networks

    for kept in _networks.values():
        kept.forget()
