"""The rule of the exit status; tests/cli/test_exit_status.py tries all commands."""

import pytest

from sparrowmq.core.exit_status import exit_status
from sparrowmq.errors import ConfigError, InvalidName, NoRoute, SparrowError


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ConfigError("x"), 2),
        (InvalidName("x"), 2),
        (NoRoute("orders", "10.0.0.1:9876"), 1),
        (SparrowError(), 1),
    ],
)
def test_what_is_wrong_in_the_line_ends_with_2_and_the_rest_with_1(error: SparrowError, status: int) -> None:
    assert exit_status(error) == status
