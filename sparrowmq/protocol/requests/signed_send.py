"""A send for access control: decoded once, with all the fields that its signature covers.

A broker with accounts decodes sends as this (`decode_in_one_pass`). An unsigned send, or one with other fields, is
decoded as without accounts, and the general check reads all of its fields.
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
