"""A certificate out of nothing."""

import ssl

import pytest

from sparrowmq.errors import ConfigError
from sparrowmq.remoting.tls import self_signed


def test_a_certificate_is_made_and_its_key_leaves_no_trace(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    self_signed.load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    assert list(tmp_path.iterdir()) == []


def test_without_the_program_it_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"No such file.*give tls\.server\.certPath .* install the program openssl"):
        self_signed.load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))


def test_what_the_program_says_is_told(tmp_path, monkeypatch):
    program = tmp_path / "openssl"
    program.write_text("#!/bin/sh\necho first >&2\necho no entropy >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(ConfigError, match=r"could be made \(no entropy\)"):
        self_signed.load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
