"""Whole numbers as Java has them, for the fields of requests and bodies."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec

INT32: Final = (1 << 31) - 1

# A larger number is refused when it is read, before it reaches a handler or a file. In keys and sets this also limits
# work: all multiples of 2^61 - 1 have the hash 0, so 20,000 of them in one set took 3 s.
Long: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
