"""A send as access control wants it: decoded once, with all that it was signed by.

A broker with accounts has sends decoded as this (`decode_in_one_pass`). One that nobody signed, or that has other
fields, is none: it is decoded as without accounts, and the long way looks into all of its fields.
"""

from __future__ import annotations

from msgspec import field

from sparrowmq.protocol.requests.headers import SendMessageV2


class SignedSend(SendMessageV2, kw_only=True, forbid_unknown_fields=True):
    """A `SendMessageV2` with all that was signed; one with other fields is none."""

    access_key: str = field(name="AccessKey")
    ons_channel: str | None = field(name="OnsChannel", default=None)  # the C++ client's
    security_token: str | None = field(name="SecurityToken", default=None)
    signature: str = field(name="Signature")
