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
from hmac import compare_digest as _is_same
from operator import itemgetter
from typing import Any, Final

import msgspec
from librt.base64 import b64encode

from sparrowmq.protocol.wire.command import LARGE_BODY_BYTES, Command
from sparrowmq.protocol.wire.connection import Sign

SIGNATURE: Final = "Signature"
ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
_UNSIGNED: Final = frozenset({SIGNATURE, UNIQUE_KEY_QUERY})
_BLOCK: Final = 64  # of SHA-1, in bytes
_SMALL_NUMBERS: Final = 32  # prepared as text: most fields are small numbers
_SMALL: Final = [str(number) for number in range(_SMALL_NUMBERS)]
# The values of a send's header, all at once: to read them one by one costs more than what is done with them.
send_values: Final = msgspec.structs.astuple
TOPIC_AT: Final = 1
ACCESS_KEY_AT: Final = 15
_SIGNATURE_AT: Final = 18
# The methods of a hash, looked up once: each request calls six of them.
_Hash: Final = type(hashlib.sha1())
_copy: Final = _Hash.copy
_update: Final = _Hash.update
_digest: Final = _Hash.digest

Buffer = bytes | bytearray | memoryview


class SigningKey:
    """A secret key for many signatures: HMAC hashes the key once, not for each request.

    `hmac.copy` does the same in twice the time.
    """

    __slots__ = ("_inner", "_outer")

    def __init__(self, secret_key: str) -> None:
        key = secret_key.encode()
        if len(key) > _BLOCK:
            key = hashlib.sha1(key).digest()
        key = key.ljust(_BLOCK, b"\0")
        self._inner = hashlib.sha1(bytes(each ^ 0x36 for each in key))
        self._outer = hashlib.sha1(bytes(each ^ 0x5C for each in key))

    def sign(self, signed: bytes) -> str:
        """The signature of a request's content."""
        return self._signature(signed).decode()

    def has_signed_request(self, request: Command, fields: Mapping[str, str]) -> bool:
        """`has_signed`, for a request with these extFields that may have a digest already."""
        digest = request.digest
        if isinstance(digest, BodyDigest) and digest.key is self:
            claimed = fields.get(SIGNATURE, "")
            return claimed.isascii() and _is_same(b64encode(digest.value), claimed.encode())
        return self.has_signed(fields, request.body)

    def has_signed(self, fields: Mapping[str, str], body: Buffer) -> bool:
        """Whether this key signed the request. Takes the same time for a wrong signature."""
        claimed = fields.get(SIGNATURE, "")
        if self._is_signature(claimed, content(fields, body)):
            return True
        return UNIQUE_KEY_QUERY in fields and self._is_signature(claimed, _content_with_all(fields, body))

    def has_signed_send(self, values: tuple[Any, ...], body: Buffer) -> bool:
        """`has_signed`, from `send_values`. False, too, if the sender does not write values as Java does, or if the
        body is large: then `has_signed_request` has its digest.
        """
        if len(body) > LARGE_BODY_BYTES:
            return False
        signature: str = values[_SIGNATURE_AT]
        return self._is_signature(signature, send_content(values, body))

    def has_signed_in_hex(self, signed: bytes, claimed: str) -> bool:
        """Whether this key signed the content, with the signature in hexadecimal digits of either case."""
        return claimed.isascii() and _is_same(self._digest_of(signed).hex(), claimed.lower())

    def _is_signature(self, claimed: str, signed: bytes) -> bool:
        return claimed.isascii() and _is_same(self._signature(signed), claimed.encode())

    def _signature(self, signed: bytes) -> bytes:
        return b64encode(self._digest_of(signed))

    def _digest_of(self, signed: bytes) -> bytes:
        inner, outer = _copy(self._inner), _copy(self._outer)
        _update(inner, signed)
        _update(outer, _digest(inner))
        return _digest(outer)

    def begin(self, signed: bytes) -> Any:
        """Return the unfinished hash of a content that begins so."""
        inner = _copy(self._inner)
        _update(inner, signed)
        return inner

    def end(self, inner: Any) -> bytes:
        """Return the digest of the content in a hash that was begun."""
        outer = _copy(self._outer)
        _update(outer, _digest(inner))
        return _digest(outer)


class LargeBodies:
    """Hashes the bodies of large requests piece by piece, before their signatures are checked.

    Args:
        accounts: returns those of now, by their access keys.
    """

    def __init__(self, accounts: Callable[[], Mapping[str, Any]]) -> None:
        self._accounts = accounts

    def hash_some(self, request: Command) -> bool:
        """Hash the next piece of a request's body. Returns whether it was the last one, or none is needed."""
        digest = request.digest
        if not isinstance(digest, BodyDigest):
            fields = request.ext_fields()
            account = self._accounts().get(fields.get(ACCESS_KEY, ""))
            if account is None:
                return True
            request.digest = digest = BodyDigest(account.key, fields, request.body)
        return digest.go_on()


class BodyDigest:
    """The digest of a request with a large body, which is hashed piece by piece and not copied.

    Attributes:
        key: of the account that the request names.
        value: the digest, once all of the body is hashed; empty before.
    """

    __slots__ = ("_at", "_body", "_inner", "key", "value")

    def __init__(self, key: SigningKey, fields: Mapping[str, str], body: Buffer) -> None:
        self.key = key
        self.value = b""
        self._body = memoryview(body)
        self._inner = key.begin(content(fields, b""))
        self._at = 0

    def go_on(self) -> bool:
        """Hash the next piece. Returns whether it was the last one."""
        end = self._at + LARGE_BODY_BYTES
        _update(self._inner, self._body[self._at : end])
        self._at = end
        if end < len(self._body):
            return False
        self.value = self.key.end(self._inner)
        return True


def signer(access_key: str, secret_key: str, security_token: str | None = None) -> Sign:
    """Make the function that signs the requests of a connection for a user."""

    key = SigningKey(secret_key)

    def sign_request(fields: dict[str, str], body: bytes) -> dict[str, str]:
        return signed_fields(fields, body, access_key, key, security_token)

    return sign_request


def signed_fields(
    fields: Mapping[str, str], body: Buffer, access_key: str, key: SigningKey, security_token: str | None = None
) -> dict[str, str]:
    """The extFields that a client adds when it signs a request with these fields and body."""
    added = {ACCESS_KEY: access_key}
    if security_token:
        added[SECURITY_TOKEN] = security_token
    added[SIGNATURE] = key.sign(content({**fields, **added}, body))
    return added


def content(fields: Mapping[str, str], body: Buffer) -> bytes:
    names = tuple(fields)
    in_order = _ORDERS.get(names) or _order(names)
    return "".join(in_order(fields)).encode("utf-8", "replace") + body


def _content_with_all(fields: Mapping[str, str], body: Buffer) -> bytes:
    """The `content` of clients that also sign `_UNIQUE_KEY_QUERY`."""
    return "".join([fields[name] for name in sorted(fields) if name != SIGNATURE]).encode("utf-8", "replace") + body


def send_content(values: tuple[Any, ...], body: Buffer) -> bytes:
    """The `content` of a send, with its fields as Java writes them. Its values are from `send_values`."""
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
    return _SMALL[value] if 0 <= value < _SMALL_NUMBERS else str(value)


def _flag(value: bool | None) -> str:
    return "" if value is None else "true" if value else "false"


# Requests of one kind have the same fields, so their names are sorted once. Ever new names clear the table, and long
# ones are not kept: peers make them up.
_ORDERS: Final[dict[tuple[str, ...], Callable[[Mapping[str, str]], Iterable[str]]]] = {}
_MOST_ORDERS: Final = 256
_LONGEST_NAMES: Final = 1024  # characters, of all fields of a request


def _order(names: tuple[str, ...]) -> Callable[[Mapping[str, str]], Iterable[str]]:
    if len(_ORDERS) >= _MOST_ORDERS:
        _ORDERS.clear()
    signed = sorted(name for name in names if name not in _UNSIGNED)
    # With one name itemgetter gives the bare value, whose characters `join` takes one by one: the same text.
    found: Callable[[Mapping[str, str]], Iterable[str]] = itemgetter(*signed) if signed else lambda fields: ()
    if sum(map(len, names)) <= _LONGEST_NAMES:
        _ORDERS[names] = found
    return found
