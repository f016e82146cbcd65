"""Signed requests, as ACL of 4.x wants them.

    content    the values of all extFields but Signature, in the order of their names, then the body
    Signature  base64( HMAC-SHA1( secret key, content ) )

The client adds AccessKey (and SecurityToken, if it has one) before it signs, so those are signed too, and so is every
field that is not known here. `_UNIQUE_KEY_QUERY` is left out: Java's client adds it after signing.
Source: AclClientRPCHook, AclUtils and PlainAccessValidator, Java 4.9.8; checked with frames of the C++ client.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from typing import Any, Final

from sparrowmq.protocol.wire.connection import Sign
from sparrowmq.protocol.wire.header import Request

SIGNATURE: Final = "Signature"
ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
_UNSIGNED: Final = frozenset({SIGNATURE, UNIQUE_KEY_QUERY})


def signer(access_key: str, secret_key: str, security_token: str | None = None) -> Sign:
    """What signs the requests of a connection in the name of a user."""

    def sign_request(request: Request[Any], body: bytes) -> dict[str, str]:
        return signed_fields(request.ext_fields(), body, access_key, secret_key, security_token)

    return sign_request


def signed_fields(
    fields: Mapping[str, str],
    body: bytes | bytearray | memoryview,
    access_key: str,
    secret_key: str,
    security_token: str | None = None,
) -> dict[str, str]:
    """The extFields that a client adds to a request with these fields and body."""
    added = {ACCESS_KEY: access_key}
    if security_token:
        added[SECURITY_TOKEN] = security_token
    added[SIGNATURE] = sign(content({**fields, **added}, body), secret_key)
    return added


def verify(fields: Mapping[str, str], body: bytes | bytearray | memoryview, secret_key: str) -> bool:
    """Whether the request was signed with the secret key. Takes as long whether it was or not."""
    expected = sign(content(fields, body), secret_key)
    return hmac.compare_digest(expected.encode(), fields.get(SIGNATURE, "").encode("utf-8", "replace"))


def content(fields: Mapping[str, str], body: bytes | bytearray | memoryview) -> bytes:
    """What is signed."""
    values = "".join([fields[name] for name in sorted(fields) if name not in _UNSIGNED])
    return values.encode("utf-8", "replace") + body


def sign(signed: bytes, secret_key: str) -> str:
    return base64.b64encode(hmac.digest(secret_key.encode(), signed, "sha1")).decode()
