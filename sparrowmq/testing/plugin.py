"""Another name of the pytest plugin, for `pytest -p sparrowmq.testing.plugin`."""

from pytest_sparrowmq import *  # noqa: F403
