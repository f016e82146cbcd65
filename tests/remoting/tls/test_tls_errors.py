"""What went wrong, in words; test_tls.py has what real connections bring."""

import ssl

from sparrowmq.remoting.tls.tls_errors import reason, why_not, why_refused


def test_other_errors_are_told_as_they_are() -> None:
    assert why_not(OSError(111, "Connection refused")) == "Connection refused"
    assert why_not(TimeoutError()) == ""
    assert why_refused(TimeoutError("no handshake within 10 s")) == "no handshake within 10 s"


def test_openssls_own_words_are_made_readable() -> None:
    error = ssl.SSLError(1, "all of it")
    error.reason = "WRONG_VERSION_NUMBER"
    assert reason(error) == "wrong version number"
    assert why_not(error) == why_refused(error) == "TLS failed: wrong version number"
