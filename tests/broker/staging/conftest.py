"""A broker with staged batches."""

import pytest

from tests.broker.staging.stagers import Broker


@pytest.fixture
def it(tmp_path, clock):
    broker = Broker(tmp_path / "store", clock)
    yield broker
    broker.store.close()
