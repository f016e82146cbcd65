"""What went wrong, in words; test_tls.py has what real connections bring."""

import ssl

import pytest

from sparrowmq.errors import BrokerUnreachable, ConnectionClosed, NameServerUnreachable, TlsFailed
from sparrowmq.remoting.connection_errors import reason, why_closed, why_refused, why_tls_failed


def test_other_errors_are_told_as_they_are() -> None:
    assert why_tls_failed(OSError(111, "Connection refused")) == "Connection refused"
    assert why_tls_failed(TimeoutError()) == ""
    assert why_refused(TimeoutError("no handshake within 10 s")) == "no handshake within 10 s"


def test_openssls_own_words_are_made_readable() -> None:
    error = ssl.SSLError(1, "all of it")
    error.reason = "WRONG_VERSION_NUMBER"
    assert reason(error) == "wrong version number"
    assert why_refused(error) == "TLS failed: wrong version number"
    assert str(why_tls_failed(error)).startswith("TLS failed: wrong version number; compare tls.client.*")


@pytest.mark.parametrize(
    ("alert", "what"),
    [
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "it demands a certificate of its clients; give one by"),
        ("TLSV1_ALERT_UNKNOWN_CA", "it does not trust our certificate; give one that"),
        ("SSLV3_ALERT_CERTIFICATE_EXPIRED", "our certificate has expired; renew"),
        ("SSLV3_ALERT_BAD_CERTIFICATE", "it refuses our certificate; its log"),
    ],
)
def test_an_alert_is_explained(alert: str, what: str) -> None:
    error = ssl.SSLError(1, "all of it")
    error.reason = alert
    assert str(why_closed(error)).startswith(what)


def test_a_certificate_that_an_older_python_takes_is_explained() -> None:
    error = ssl.SSLCertVerificationError(1, "all of it")
    error.verify_code, error.verify_message = 92, "CA cert does not include key usage extension"
    assert "key usage extension; make it and its CA again, as `sparrowmq secure" in str(why_tls_failed(error))


def test_errors_give_the_advice_of_tls_and_no_other() -> None:
    why = TlsFailed("it refuses us", "renew it")
    for error in (
        BrokerUnreachable("10.0.0.1:10911", why),
        NameServerUnreachable("10.0.0.1:9876", why),
        NameServerUnreachable("10.0.0.1:9876", ConnectionClosed("10.0.0.1:9876", why)),
        ConnectionClosed("10.0.0.1:10911", why),
    ):
        assert str(error).endswith("(it refuses us); renew it")
        assert "brokerIP1" not in str(error) and "mqnamesrv" not in str(error)
