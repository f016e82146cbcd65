"""Bodies as JSON objects, read strictly (RFC 8259): what two readers would understand in two ways is refused.

Numbers keep their text: one with a point or an exponent is a `Real`, others are int. So nothing is rounded here.
msgspec reads nearly all bodies, in a seventh of the time. It does not say whether a field is there twice, nor what is
wrong, so the standard library reads what may have such a field, and what msgspec refuses.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any, Final, NoReturn, TypeAlias

import msgspec

Object: TypeAlias = dict[str, Any]


class NoRow(Exception):
    """A body does not become a row; the text is the reason."""


class Real(str):
    """A number with a point or an exponent, as it is written."""

    __slots__ = ()


def read_object(body: bytes | None) -> Object:
    """Return the object in a body. Raises: NoRow."""
    if not body:
        raise NoRow("the body is empty")
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        found = _FAST.decode(body)
        if type(found) is dict and _has_each_once(body, found):
            return found
    return _read_slowly(body)


def _has_each_once(body: bytes, found: Object) -> bool:
    """Whether no object has a name twice: then there are as many `":` as names. False if texts have some as well."""
    return body.count(b'":') == _names(found) and _SPACED.search(body) is None


def _names(value: Any) -> int:
    """Count the names in all objects of a value."""
    if type(value) is dict:
        return len(value) + sum(_names(each) for each in value.values() if type(each) in (dict, list))
    return sum(_names(each) for each in value if type(each) in (dict, list))


def _read_slowly(body: bytes) -> Object:
    """Return the object in a body. Raises: NoRow, with the reason."""
    try:
        found = _DECODER.decode(body.decode())
    except UnicodeDecodeError:
        raise NoRow("the body is not UTF-8") from None
    except RecursionError:
        raise NoRow("the body is nested too deeply") from None
    except json.JSONDecodeError:
        raise NoRow("the body is not JSON") from None
    except ValueError:
        raise NoRow("a number has too many digits") from None
    if not isinstance(found, dict):
        raise NoRow("the body is JSON, but no object")
    return found


def as_json(value: object) -> str:
    """Return a value as JSON, with its numbers as they were written."""
    if isinstance(value, Real):
        return value
    if isinstance(value, dict):
        return "{" + ",".join(f"{as_json(name)}:{as_json(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(as_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _without_repeats(pairs: list[tuple[str, Any]]) -> Object:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    seen = set()
    for name, _ in pairs:
        if name in seen:
            raise NoRow(f"the field {name} is there twice")
        seen.add(name)
    raise AssertionError("one of them is there twice")


def _refuse_constant(name: str) -> NoReturn:
    raise NoRow(f"{name} is not JSON")


_FAST: Final = msgspec.json.Decoder(float_hook=Real)
_SPACED: Final = re.compile(rb'"[ \t\r\n]+:')
_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_without_repeats, parse_float=Real, parse_constant=_refuse_constant
)
