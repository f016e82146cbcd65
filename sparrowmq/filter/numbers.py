"""Read numbers from text as Java does. None means that Java refuses the text, and that the expression fails.

Properties are text, so each comparison with a number parses one. Integer.valueOf takes a sign and digits of any script,
within 32 or 64 bits; Double.valueOf takes more than Python's float, such as "1d" and "0x1p3", and less: no "inf".
Source: java.lang.Integer, Long and Double of Java 17.
"""

from __future__ import annotations

import math
import re
from typing import Final

_DIGITS_OF_ANY_INT: Final = 9  # so many decimal digits always fit into 32 bits
_LONGEST_WHOLE: Final = 19  # digits of the largest long
# Unlike Java: a longer text is no number. No double needs more digits, and parsing them takes time.
_LONGEST: Final = 1100
_DOUBLE: Final = re.compile(
    r"[+-]?(?:(?P<name>NaN|Infinity)"
    r"|(?P<plain>(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)[fFdD]?"
    r"|(?P<hex>0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?)"
)
_TRIMMED: Final = "".join(map(chr, range(0x21)))  # what String.trim takes away


def integer(text: str, bits: int) -> int | None:
    """The whole number in `text`, if it fits into so many bits, sign included."""
    if len(text) <= _DIGITS_OF_ANY_INT and text.isascii() and text.isdigit():
        return int(text)
    digits = text[1:] if text[:1] in ("+", "-") else text
    # Java looks at UTF-16 units, so digits beyond U+FFFF are none.
    if len(digits) > _LONGEST or not digits.isdecimal() or max(digits) > "\uffff":
        return None
    # Leading zeros of any script are worth nothing, and may be many.
    start = 0
    while start < len(digits) - 1 and int(digits[start]) == 0:
        start += 1
    if len(digits) - start > _LONGEST_WHOLE:
        return None
    number = -int(digits[start:]) if text[0] == "-" else int(digits[start:])
    limit = 1 << (bits - 1)
    return number if -limit <= number < limit else None


def double(text: str) -> float | None:
    text = text.strip(_TRIMMED)
    found = _DOUBLE.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None:
        return None
    if found["plain"] is not None:
        number = float(found["plain"])
    elif found["name"] is not None:
        number = math.nan if found["name"] == "NaN" else math.inf
    else:
        number = _hexadecimal(found["hex"])
    return -number if text[0] == "-" else number


def _hexadecimal(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return math.inf


def double_order(left: float, right: float) -> int:
    """-1, 0 or 1 as Double.compare: NaN is above all and equal to itself, and 0.0 above -0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right:
        return int(math.copysign(1.0, left) > math.copysign(1.0, right)) - int(
            math.copysign(1.0, left) < math.copysign(1.0, right)
        )
    return int(left != left) - int(right != right)


def whole_order(left: int, right: int) -> int:
    """-1, 0 or 1."""
    return (left > right) - (left < right)
