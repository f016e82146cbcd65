"""Whole numbers that others write: properties of messages, answers of peers, forms, names of files."""

from __future__ import annotations

from typing import Final

MAX_DIGITS: Final = 18  # of a number that fits an int64, also one with `timer_wheel.RECALL`


def whole_number(text: str | None, max_digits: int = MAX_DIGITS) -> int | None:
    """Return the number that a text of the digits 0 to 9 is; None if it is none. `int` alone takes the digits of other
    scripts, `_` and blanks. It raises ValueError for thousands of digits, and for some digits that `isdigit` lets pass.
    """
    if text is not None and text.isascii() and text.isdigit() and len(text) <= max_digits:
        return int(text)
    return None
