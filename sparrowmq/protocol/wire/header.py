"""What a request or reply header is, and how its fields travel.

A header is a flat set of named values that travel as strings in the frame's `extFields`. Each request is one `Request`
subclass, which names its code and the header of its reply; `headers.py` holds them all. `fields.py` writes and reads
their JSON.
"""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar, get_args, get_origin

import msgspec

from sparrowmq.protocol.wire.fields import text_of

R = TypeVar("R", bound="Header")


class Header(msgspec.Struct, rename="camel", gc=False):
    """The fields of one request or reply; a field that is None does not travel."""

    def ext_fields(self) -> dict[str, str]:
        """The fields by their wire names, as text."""
        names = self.__struct_encode_fields__
        values = msgspec.structs.astuple(self)
        return {name: text_of(value) for name, value in zip(names, values, strict=True) if value is not None}


class NoFields(Header):
    """The header of a reply that has none."""


class Request(Header, Generic[R]):
    """A header that starts a conversation; the type argument is the header of its reply.

    class GetMaxOffset(Request[GetMaxOffsetReply]):
        code: ClassVar[int] = RequestCode.GET_MAX_OFFSET
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
