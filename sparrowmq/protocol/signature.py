"""Signatures of requests, as in the ACL of 4.x.

    content    the values of all extFields but Signature, in the order of their names, then the body
    Signature  base64( HMAC-SHA1( secret key, content ) )

The client adds AccessKey (and SecurityToken, if it has one) before it signs, so the signature covers them, and also all
unknown fields. `_UNIQUE_KEY_QUERY` is special: Java's clients sign it from 4.9.4 on. Brokers of 4.9 expect that it is
not signed, and those of 5.x expect so of clients up to 4.9.3. In a signed query by key our client says that it is one
of those, and our brokers take both.
Source: AclClientRPCHook, AclUtils and PlainAccessValidator, Java 4.9.8; DefaultAuthenticationContextBuilder, Java
5.4.0; checked with frames of the C++ client.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Final

from sparrowmq.kernel.signing import Hmac, is_same
from sparrowmq.protocol.wire.connection import Sign

SIGNATURE: Final = "Signature"
ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
_UNSIGNED_FIELDS: Final = frozenset({SIGNATURE, UNIQUE_KEY_QUERY})
_BLOCK_BYTES: Final = 64  # of SHA-1, in bytes
Buffer = bytes | bytearray | memoryview


class SigningKey:
    """A secret key for many signatures."""

    __slots__ = ("hmac",)

    def __init__(self, secret_key: str) -> None:
        key = secret_key.encode()
        if len(key) > _BLOCK_BYTES:
            key = hashlib.sha1(key).digest()
        key = key.ljust(_BLOCK_BYTES, b"\0")
        pads = [hashlib.sha1(bytes(byte ^ pad for byte in key)) for pad in (0x36, 0x5C)]
        self.hmac = Hmac(*pads)

    def sign(self, signed_content: bytes) -> str:
        return self.hmac.sign(signed_content).decode()

    def has_signed(self, fields: Mapping[str, str], body: Buffer) -> bool:
        """Whether this key signed the request. Takes the same time for a wrong signature."""
        signature = fields.get(SIGNATURE, "")
        if self._is_signature(signature, content(fields, body)):
            return True
        return UNIQUE_KEY_QUERY in fields and self._is_signature(
            signature, _content_with_unique_key_query(fields, body)
        )

    def has_signed_in_hex(self, signed_content: bytes, signature: str) -> bool:
        """Whether this key signed the content, with the signature in hexadecimal digits of either case."""
        digits = self.hmac.digest(signed_content).hex().encode()
        return signature.isascii() and is_same(digits, signature.lower().encode())

    def _is_signature(self, signature: str, signed_content: bytes) -> bool:
        return signature.isascii() and self.hmac.has_signed(signed_content, signature.encode())


def signer(access_key: str, secret_key: str, security_token: str | None = None) -> Sign:
    key = SigningKey(secret_key)

    def sign_request(fields: dict[str, str], body: bytes) -> dict[str, str]:
        return signed_fields(fields, body, access_key, key, security_token)

    return sign_request


def signed_fields(
    fields: Mapping[str, str], body: Buffer, access_key: str, key: SigningKey, security_token: str | None = None
) -> dict[str, str]:
    """The extFields that a client adds when it signs a request with these fields and body."""
    fields_to_add = {ACCESS_KEY: access_key}
    if security_token:
        fields_to_add[SECURITY_TOKEN] = security_token
    fields_to_add[SIGNATURE] = key.sign(content({**fields, **fields_to_add}, body))
    return fields_to_add


def content(fields: Mapping[str, str], body: Buffer) -> bytes:
    names = tuple(fields)
    in_order = _VALUE_GETTERS.get(names) or _make_value_getter(names)
    return "".join(in_order(fields)).encode("utf-8", "replace") + body


def _content_with_unique_key_query(fields: Mapping[str, str], body: Buffer) -> bytes:
    """The `content` of clients that also sign `_UNIQUE_KEY_QUERY`."""
    return "".join([fields[name] for name in sorted(fields) if name != SIGNATURE]).encode("utf-8", "replace") + body


# Requests of one kind have the same fields, so their names are sorted once. Ever new names clear the table, and long
# ones are not kept: peers make them up.
_VALUE_GETTERS: Final[dict[tuple[str, ...], Callable[[Mapping[str, str]], Iterable[str]]]] = {}
_MAX_VALUE_GETTERS: Final = 256
_MAX_KEPT_CHARACTERS: Final = 1024  # characters, of all fields of a request


def _make_value_getter(names: tuple[str, ...]) -> Callable[[Mapping[str, str]], Iterable[str]]:
    if len(_VALUE_GETTERS) >= _MAX_VALUE_GETTERS:
        _VALUE_GETTERS.clear()
    signed_names = sorted(name for name in names if name not in _UNSIGNED_FIELDS)
    # With one name itemgetter gives the bare value, whose characters `join` takes one by one: the same text.
    getter: Callable[[Mapping[str, str]], Iterable[str]] = (
        itemgetter(*signed_names) if signed_names else lambda fields: ()
    )
    if sum(map(len, names)) <= _MAX_KEPT_CHARACTERS:
        _VALUE_GETTERS[names] = getter
    return getter
