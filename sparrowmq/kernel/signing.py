"""Signatures of requests: HMAC-SHA1 with a secret key, in base64. protocol/signature.py says what is signed."""

from __future__ import annotations

from binascii import b2a_base64
from typing import Any


class Hmac:
    """A secret key for many signatures: HMAC hashes the key once, not for each request.

    Args:
        inner, outer: hashes of the key's two paddings, from hashlib.
    """

    __slots__ = ("_inner", "_outer")

    def __init__(self, inner: Any, outer: Any) -> None:
        self._inner = inner
        self._outer = outer

    def begin(self, prefix: bytes) -> Any:
        """The unfinished hash of a content that begins so."""
        inner = self._inner.copy()
        inner.update(prefix)
        return inner

    def finish(self, unfinished_hash: Any) -> bytes:
        outer = self._outer.copy()
        outer.update(unfinished_hash.digest())
        digest: bytes = outer.digest()
        return digest

    def digest(self, content: bytes) -> bytes:
        return self.finish(self.begin(content))

    def sign(self, content: bytes) -> bytes:
        return b2a_base64(self.digest(content), newline=False)

    def has_signed(self, content: bytes, signature: bytes) -> bool:
        """Whether this key signed the content. Takes the same time for a wrong signature."""
        return is_same(self.sign(content), signature)


def is_same(one: bytes, other: bytes) -> bool:
    """Compare two secrets, in a time that says only whether their sizes differ."""
    if len(one) != len(other):
        return False
    difference, index = 0, 0
    while index < len(one):
        difference |= one[index] ^ other[index]
        index += 1
    return difference == 0
