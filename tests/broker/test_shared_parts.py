from dataclasses import FrozenInstanceError
from typing import Any, cast

import pytest

from sparrowmq.broker.shared_parts import SharedParts


def test_a_broker_keeps_its_parts():
    parts: Any = SharedParts(*cast(Any, range(8)))
    with pytest.raises(FrozenInstanceError):
        parts.store = None
