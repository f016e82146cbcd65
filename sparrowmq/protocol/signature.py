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
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any, Final

import msgspec

from sparrowmq.kernel.signing import Hmac, is_same
from sparrowmq.protocol.wire.command import LARGE_BODY_BYTES, Command
from sparrowmq.protocol.wire.connection import Sign

SIGNATURE: Final = "Signature"
ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
_UNSIGNED_FIELDS: Final = frozenset({SIGNATURE, UNIQUE_KEY_QUERY})
_BLOCK_BYTES: Final = 64  # of SHA-1, in bytes
_SMALL_NUMBER_COUNT: Final = 32  # prepared as text: most fields are small numbers
_SMALL_NUMBER_TEXTS: Final = [str(number) for number in range(_SMALL_NUMBER_COUNT)]
# The values of a send's header, all at once: to read them one by one costs more than what is done with them.
values_of_send: Final = msgspec.structs.astuple
TOPIC_AT: Final = 1
ACCESS_KEY_AT: Final = 15
_SIGNATURE_AT: Final = 18
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

    def has_signed_request(self, request: Command, fields: Mapping[str, str]) -> bool:
        """`has_signed`, for a request with these extFields that may have a digest already."""
        digest = request.digest
        if isinstance(digest, BodyDigest) and digest.key is self:
            signature = fields.get(SIGNATURE, "")
            return signature.isascii() and is_same(b2a_base64(digest.value, newline=False), signature.encode())
        return self.has_signed(fields, request.body)

    def has_signed(self, fields: Mapping[str, str], body: Buffer) -> bool:
        """Whether this key signed the request. Takes the same time for a wrong signature."""
        signature = fields.get(SIGNATURE, "")
        if self._is_signature(signature, content(fields, body)):
            return True
        return UNIQUE_KEY_QUERY in fields and self._is_signature(
            signature, _content_with_unique_key_query(fields, body)
        )

    def has_signed_send(self, values: tuple[Any, ...], body: Buffer) -> bool:
        """`has_signed`, from `values_of_send`. False, too, if the sender does not write values as Java does, or if the
        body is large: then `has_signed_request` has its digest.
        """
        if len(body) > LARGE_BODY_BYTES:
            return False
        signature: str = values[_SIGNATURE_AT]
        return self._is_signature(signature, content_of_send(values, body))

    def has_signed_in_hex(self, signed_content: bytes, signature: str) -> bool:
        """Whether this key signed the content, with the signature in hexadecimal digits of either case."""
        digits = self.hmac.digest(signed_content).hex().encode()
        return signature.isascii() and is_same(digits, signature.lower().encode())

    def _is_signature(self, signature: str, signed_content: bytes) -> bool:
        return signature.isascii() and self.hmac.has_signed(signed_content, signature.encode())


class LargeBodies:
    """Hashes the bodies of large requests piece by piece, before their signatures are checked. `accounts` returns those
    of now, by their access keys.
    """

    def __init__(self, accounts: Callable[[], Mapping[str, Any]]) -> None:
        self._accounts = accounts

    def hash_next_piece(self, request: Command) -> bool:
        """Hash the next piece of a request's body. Returns whether it was the last one, or none is needed."""
        digest = request.digest
        if not isinstance(digest, BodyDigest):
            fields = request.ext_fields()
            account = self._accounts().get(fields.get(ACCESS_KEY, ""))
            if account is None:
                return True
            request.digest = digest = BodyDigest(account.key, fields, request.body)
        return digest.hash_next_piece()


class BodyDigest:
    """The digest of a request with a large body, which is hashed piece by piece and not copied."""

    __slots__ = ("_body", "_position", "_unfinished_hash", "key", "value")

    def __init__(self, key: SigningKey, fields: Mapping[str, str], body: Buffer) -> None:
        self.key = key  # of the account that the request names
        self.value = b""  # the digest, once all of the body is hashed; empty before
        self._body = memoryview(body)
        self._unfinished_hash = key.hmac.begin(content(fields, b""))
        self._position = 0

    def hash_next_piece(self) -> bool:
        end = self._position + LARGE_BODY_BYTES
        self._unfinished_hash.update(self._body[self._position : end])
        self._position = end
        if end < len(self._body):
            return False
        self.value = self.key.hmac.finish(self._unfinished_hash)
        return True


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


def content_of_send(values: tuple[Any, ...], body: Buffer) -> bytes:
    """The `content` of a send, with its fields as Java writes them. Its values are from `values_of_send`."""
    # One text of known types: a loop that asks for the type of each value costs half as much again.
    access_key: str = values[ACCESS_KEY_AT]
    ons_channel: str | None = values[16]
    token: str | None = values[17]
    group: str = values[0]
    topic: str = values[TOPIC_AT]
    default_topic: str = values[2]
    properties: str | None = values[8]
    broker_name: str | None = values[13]
    # The names of a send's own fields are letters in their order; those in capitals come before them.
    text = (
        f"{access_key}{_flag(values[14])}{ons_channel or ''}{token or ''}"
        f"{group}{topic}{default_topic}{_number(values[3])}{_number(values[4])}{_number(values[5])}"
        f"{_number(values[6])}{_number(values[7])}{properties or ''}{_number(values[9])}{_flag(values[10])}"
        f"{_number(values[11])}{_flag(values[12])}{broker_name or ''}"
    )
    try:
        return text.encode() + body
    except UnicodeEncodeError:  # a half of a surrogate pair, which Java writes as "?"
        return text.encode("utf-8", "replace") + body


def _number(value: int | None) -> str:
    if value is None:
        return ""
    return _SMALL_NUMBER_TEXTS[value] if 0 <= value < _SMALL_NUMBER_COUNT else str(value)


def _flag(value: bool | None) -> str:
    return "" if value is None else "true" if value else "false"


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
