"""The browsers that an account has used: each has a signed cookie, so wrong passwords from elsewhere do not pause it.

    cookie  id.signature      id: 16 random bytes; the signature is HMAC-SHA256 of account and id

The key is the account's hashed password. So the cookie outlives a restart of the console, and a new password makes all
cookies of the account invalid. The cookie opens nothing: a log-in still needs the password.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Final

from sparrowmq.console.users import Account

LIFE_S: Final = 180 * 86_400


def new_cookie(account: Account) -> str:
    ident = secrets.token_hex(16)
    return f"{ident}.{_signature(account, ident)}"


def browser_of(account: Account | None, cookie: str | None) -> str:
    """The id of the browser, if the account has used it; otherwise ""."""
    ident, _, signature = (cookie or "").partition(".")
    if account is None or not hmac.compare_digest(signature.encode(), _signature(account, ident).encode()):
        return ""
    return ident


def _signature(account: Account, ident: str) -> str:
    key = hashlib.sha256(b"known browser " + account.hashed.encode()).digest()
    return hmac.new(key, f"{account.name} {ident}".encode(), hashlib.sha256).hexdigest()
