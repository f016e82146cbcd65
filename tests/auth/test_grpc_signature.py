"""The signature of gRPC requests."""

import hashlib
import hmac
from datetime import UTC, datetime, timedelta

import pytest

from sparrowmq.auth.grpc_signature import Freshness, grpc_principal
from sparrowmq.auth.users import User
from sparrowmq.errors import AccessDenied, DenialKind
from sparrowmq.protocol.signature import SigningKey

NOW = datetime(2026, 11, 23, 18, 0, 0, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
ALICE = User("alice", SigningKey("secret of alice"))
ACCOUNTS = {"alice": ALICE, "bob": User("bob", SigningKey("secret of bob"))}


def metadata(secret="secret of alice", at=NOW, credential="alice", signature=None, text=None):
    date_time = at.strftime("%Y%m%dT%H%M%SZ") if text is None else text
    made = hmac.new(secret.encode(), date_time.encode(), hashlib.sha1).hexdigest()
    signature = made if signature is None else signature
    header = f"MQv2-HMAC-SHA1 Credential={credential}, SignedHeaders=x-mq-date-time, Signature={signature}"
    return {"authorization": header, "x-mq-date-time": date_time}


def denial(fields):
    with pytest.raises(AccessDenied) as caught:
        grpc_principal(fields, ACCOUNTS, NOW_MS)
    assert "secret of" not in str(caught.value)
    return caught.value.kind


@pytest.mark.parametrize("credential", ["alice", "alice/region", "alice/region/service"])
def test_the_account_that_signed_is_returned(credential):
    assert grpc_principal(metadata(credential=credential), ACCOUNTS, NOW_MS) is ALICE


def test_the_signature_counts_in_capitals_and_with_other_blanks():
    fields = metadata()
    head, _, signature = fields["authorization"].rpartition("=")
    fields["authorization"] = f"{head}={signature.upper()}".replace(", ", ",")
    assert grpc_principal(fields, ACCOUNTS, NOW_MS) is ALICE


def test_a_wrong_signature_is_denied():
    for fields in (
        metadata(secret="secret of bob"),
        metadata(credential="bob"),
        metadata(signature=""),
        metadata(signature="é"),
        metadata() | {"x-mq-date-time": "20261123T180001Z"},
        {"authorization": metadata()["authorization"]},
        metadata() | {"authorization": metadata()["authorization"].replace("SHA1", "SHA9")},
    ):
        assert denial(fields) is DenialKind.WRONG_SIGNATURE


def test_a_request_without_a_known_account_is_denied():
    for fields in (
        {},
        {"x-mq-date-time": "20261123T180000Z"},
        metadata(credential="carol"),
        metadata(credential=""),
        {"authorization": "nonsense"},
        {"authorization": "MQv2-HMAC-SHA1 ,,=,Credential"},
    ):
        assert denial(fields) is DenialKind.UNKNOWN_ACCOUNT


@pytest.mark.parametrize("minutes", [-5, 0, 5])
def test_a_signature_is_valid_for_five_minutes(minutes):
    at, second = NOW + timedelta(minutes=minutes), timedelta(seconds=1 if minutes > 0 else -1)
    assert grpc_principal(metadata(at=at), ACCOUNTS, NOW_MS) is ALICE
    if minutes:
        assert denial(metadata(at=at + second)) is DenialKind.WRONG_SIGNATURE


@pytest.mark.parametrize("hours", [-12, -3.5, 5.75, 8, 14])
def test_the_local_time_of_a_java_client_is_valid(hours):
    local = metadata(at=NOW + timedelta(hours=hours, minutes=-1))
    assert grpc_principal(local, ACCOUNTS, NOW_MS) is ALICE


@pytest.mark.parametrize("hours", [-13, 15, -24 * 365, 24])
def test_a_time_of_no_zone_is_denied(hours):
    assert denial(metadata(at=NOW + timedelta(hours=hours))) is DenialKind.WRONG_SIGNATURE


@pytest.mark.parametrize("text", ["", "now", "2026-11-23T18:00:00Z", "20261123T180000", "99999999T999999Z"])
def test_a_time_that_cannot_be_read_is_denied_unless_the_age_does_not_count(text):
    assert denial(metadata(text=text)) is DenialKind.WRONG_SIGNATURE
    assert grpc_principal(metadata(text=text), ACCOUNTS, NOW_MS, Freshness(0)) is ALICE
