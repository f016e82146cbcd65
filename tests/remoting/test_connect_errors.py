import socket
from errno import ECONNREFUSED, EHOSTUNREACH, EMFILE

import pytest

from sparrowmq.remoting.connection_errors import why_unconnected

REFUSED = f"[Errno {ECONNREFUSED}] Connect call failed"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(ECONNREFUSED, "Connect call failed ('127.0.0.1', 9)"), "Connection refused"),
        (
            OSError(f"Multiple exceptions: {REFUSED} ('::1', 9, 0, 0), {REFUSED} ('127.0.0.1', 9)"),
            "Connection refused",
        ),
        (
            OSError(f"Multiple exceptions: {REFUSED} ('::1', 9, 0, 0), [Errno {EHOSTUNREACH}] Connect call failed"),
            "Connection refused, No route to host",
        ),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not known"),
        (OSError(EMFILE, "socket"), "Too many open files in this process: raise `ulimit -n`"),
        (UnicodeError("label too long"), "label too long"),
        (TimeoutError(), ""),
    ],
)
def test_the_reason_is_that_of_the_system(error, reason):
    assert why_unconnected(error) == reason
