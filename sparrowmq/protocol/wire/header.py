"""The base classes of request and reply headers.

A header is a flat set of named values, sent as strings in the frame's `extFields`. Each request is a subclass of
`Request`, which names its code and the header of its reply; `headers.py` has them all. `fields.py` reads and writes
their JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar, get_args, get_origin

import msgspec

from sparrowmq.protocol.java_numbers import Long as Long
from sparrowmq.protocol.wire.fields import text_of

R = TypeVar("R", bound="Header")
Q = TypeVar("Q", bound="Request[Any]")


class Header(msgspec.Struct, rename="camel", gc=False):
    """The fields of one request or reply. A field that is None is not sent."""

    def ext_fields(self) -> dict[str, str]:
        names = self.__struct_encode_fields__
        values = msgspec.structs.astuple(self)
        return {name: text_of(value) for name, value in zip(names, values, strict=True) if value is not None}


class NoFields(Header):
    """The header of a reply without fields."""


class Request(Header, Generic[R]):
    """The header of a request. The type argument is the header of its reply.

    @request(RequestCode.GET_MAX_OFFSET)
    class GetMaxOffset(Request[GetMaxOffsetReply]):
        topic: str
        queue_id: int
    """

    code: ClassVar[int]
    Reply: ClassVar[type[Header]] = NoFields

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for base in cls.__dict__.get("__orig_bases__", ()):
            if get_origin(base) is Request and isinstance(reply := get_args(base)[0], type):
                cls.Reply = reply


def request(code: int) -> Callable[[type[Q]], type[Q]]:
    """Give a request its code."""

    def give(kind: type[Q]) -> type[Q]:
        kind.code = code
        return kind

    return give
