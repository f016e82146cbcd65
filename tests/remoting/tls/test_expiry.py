"""A certificate that ends soon, or has ended, is seen before clients see it."""

from datetime import UTC, datetime, timedelta

import pytest

from sparrowmq.remoting.tls.contexts import ServerTls, ends_at
from sparrowmq.remoting.tls.tls_settings import ServerTlsSettings
from sparrowmq.testing.clock import ManualClock
from tests.certificates import authority, signed


@pytest.fixture(scope="module")
def trusted(tmp_path_factory):
    return authority(tmp_path_factory.mktemp("authority"))


@pytest.mark.parametrize("days", [1, 400, 20_000])  # from 2050 on the time has another form
def test_the_end_of_a_certificate_is_read_from_its_file(tmp_path, trusted, days):
    pair = signed(tmp_path, "server", trusted, days=days)
    found = ends_at(pair.certificate)
    wanted = datetime.now(UTC) + timedelta(days=days)
    assert found is not None and abs(found - wanted) < timedelta(minutes=10)


@pytest.mark.parametrize("content", [b"", b"no PEM", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_a_file_without_a_certificate_has_no_end(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    assert ends_at(tmp_path / "file") is None and ends_at(tmp_path / "missing") is None


def test_a_certificate_that_ends_soon_is_a_problem(tmp_path, trusted):
    pair = signed(tmp_path, "server", trusted, days=20)
    now = datetime.now(UTC)
    clock = ManualClock(now_ms=int(now.timestamp() * 1000))
    tls = ServerTls(ServerTlsSettings(certificate=pair.certificate, key=pair.key), clock)
    assert tls.problem == ""
    for later_days, words in ((7, "ends at"), (21, "ended at")):
        clock._start_ms = int((now + timedelta(days=later_days)).timestamp() * 1000)
        assert words in tls.problem and str(pair.certificate) in tls.problem
