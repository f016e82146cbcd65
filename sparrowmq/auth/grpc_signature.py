"""The signature of gRPC requests.

    x-mq-date-time   20261123T101500Z
    authorization    MQv2-HMAC-SHA1 Credential=AK[/...], SignedHeaders=x-mq-date-time, Signature=HEX

    Signature        hex( HMAC-SHA1( secret key, date-time ) )

Only the time is signed, so a captured header would be valid forever. Unlike Java, a signature is valid for some
minutes. Apache's Java client writes its local time, and calls it Z. So the time may be that of any time zone: a
captured header is valid for some minutes in each zone. Only TLS keeps a header from being captured.
Source: AuthenticationContextBuilder, Java 5.4.0; Signature of the clients for Java.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sparrowmq.auth.users import User
from sparrowmq.errors import AccessDenied, DenialKind

AUTHORIZATION: Final = "authorization"
DATE_TIME: Final = "x-mq-date-time"
SCHEME: Final = "MQv2-HMAC-SHA1"
_DATE_TIME_LENGTH: Final = len("20261123T101500Z")
_HOUR_S: Final = 3600
_QUARTER_S: Final = 900  # the offset of every time zone is a multiple
_MIN_ZONE_S: Final = -12 * _HOUR_S
_MAX_ZONE_S: Final = 14 * _HOUR_S


@dataclass(frozen=True, slots=True)
class Freshness:
    """The rule for the age of signatures: `most_s` is the largest difference to the server's clock; 0 accepts every
    age, as Apache does."""

    max_age_s: int = 300

    def accepts(self, text: str, now_ms: int) -> bool:
        """Whether a date-time is recent enough. Any text is, if the age does not count."""
        if not self.max_age_s:
            return True
        if len(text) != _DATE_TIME_LENGTH or not text.endswith("Z"):
            return False
        try:
            signed_time = datetime.fromisoformat(text)  # a tenth of the time of strptime
        except ValueError:
            return False
        ahead_s = signed_time.timestamp() - now_ms / 1000
        zone_s = round(ahead_s / _QUARTER_S) * _QUARTER_S
        return abs(ahead_s - zone_s) <= self.max_age_s and _MIN_ZONE_S <= zone_s <= _MAX_ZONE_S


def grpc_principal(
    metadata: Mapping[str, str], accounts: Mapping[str, User], now_ms: int, freshness: Freshness = Freshness()
) -> User:
    """Return the account that signed a request, whose metadata has names in small letters. Raises: AccessDenied, no
    account signed the request, or too long ago. The gRPC code is 40100."""
    header = metadata.get(AUTHORIZATION, "")
    if not header:
        raise AccessDenied("No authorization header").of_kind(DenialKind.UNKNOWN_ACCOUNT)
    scheme, _, rest = header.strip().partition(" ")
    parts = [part.partition("=") for part in rest.split(",")]
    fields = {name.strip().lower(): value.strip() for name, _, value in parts}
    access_key = fields.get("credential", "").partition("/")[0]
    account = accounts.get(access_key)
    if account is None:
        raise AccessDenied(f"User:{access_key} is not found").of_kind(DenialKind.UNKNOWN_ACCOUNT)
    date_time = metadata.get(DATE_TIME, "")
    signature = fields.get("signature", "")
    if scheme != SCHEME or not account.key.has_signed_in_hex(date_time.encode(), signature):
        raise AccessDenied(f"Check signature failed for accessKey={access_key}").of_kind(DenialKind.WRONG_SIGNATURE)
    if not freshness.accepts(date_time, now_ms):
        raise AccessDenied(
            f"The signature of accessKey={access_key} is too old: set the clocks of the client and the server"
        ).of_kind(DenialKind.WRONG_SIGNATURE)
    return account
