"""Names of versions, as Java's tool writes them."""

import pytest

from sparrowmq.protocol.codes import version_name


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (0, "V3_0_0_SNAPSHOT"),
        (194, "V3_9_1_SNAPSHOT"),
        (407, "V4_9_7"),
        (408, "V4_9_8_SNAPSHOT"),
        (409, "V4_9_8"),
        (611, "V5_9_9"),
        (612, "HIGHER_VERSION"),
        (99, "V3(99)"),
    ],
)
def test_a_version_has_its_name(number: int, name: str) -> None:
    assert version_name(number) == name
