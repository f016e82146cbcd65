"""The names of Java's protocol versions, which clients and brokers send as numbers."""

from __future__ import annotations

from typing import Final

# MQVersion: V3_9_1_SNAPSHOT is number 194, V5_9_9 number 611.
_FIRST_REGULAR: Final = 194
_REGULAR_OFFSET: Final = 588
_HIGHER_VERSION: Final = 612
V5_0_0: Final = 413  # since this version Apache's brokers deliver at any time


def version_name(number: int) -> str:
    """MQVersion.getVersionDesc: from V3_9_1 on two numbers a release, the first one for its snapshot."""
    if number >= _HIGHER_VERSION:
        return "HIGHER_VERSION"
    if number < _FIRST_REGULAR:
        return "V3_0_0_SNAPSHOT" if number == 0 else f"V3({number})"
    release, is_final = divmod(number + _REGULAR_OFFSET, 2)
    digits = "_".join(str(release))
    return f"V{digits}" if is_final else f"V{digits}_SNAPSHOT"
