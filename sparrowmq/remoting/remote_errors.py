"""The errors of answers: what a client raises for the code and the remark of a peer."""

from __future__ import annotations

import re
from typing import Final

from sparrowmq.errors import ACCESS_EXCEPTION, AccessDenied, RemoteError

# 5.3 and later answer with the code of brokers that may only be read, and have no such beginning.
# (Java 5.3.3: DefaultAuthenticationHandler, AclAuthorizationHandler)
_ACCESS_CODE_OF_5: Final = 16
_ACCESS_REMARK_OF_5: Final = re.compile(
    "User:.* (has no permission to access|is not found|is disabled)|username cannot be null|check signature failed"
)


def remote_error(code: int, remark: str | None) -> RemoteError:
    if code == 1 and remark and remark.startswith(ACCESS_EXCEPTION):
        return AccessDenied(remark)
    if code == _ACCESS_CODE_OF_5 and remark and _ACCESS_REMARK_OF_5.match(remark):
        return AccessDenied(remark, code)
    return RemoteError(code, remark)
