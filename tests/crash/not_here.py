"""What a rig needs and a machine may lack."""

from collections.abc import Iterator
from contextlib import contextmanager


class NotHere(Exception):
    """This machine cannot do that; the text says what is missing."""


@contextmanager
def skipped_without(what: str) -> Iterator[None]:
    """Skip the test if what is set up meanwhile is NotHere; `what` it is, in words."""
    import pytest  # which the rigs of `./run chaos` go without

    try:
        yield
    except NotHere as reason:
        pytest.skip(f"needs {what}: {reason}")
