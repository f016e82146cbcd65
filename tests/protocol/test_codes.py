"""Codes: as many as Java has, and the numbers that are easily got wrong."""

import pytest

from sparrowmq.errors import RETRIABLE_CODES
from sparrowmq.protocol.codes import LanguageCode, RequestCode, ResponseCode

ACL_1 = {50, 51, 52, 53}


def test_all_158_codes_of_java_5_and_the_four_of_4_9_are_there() -> None:
    assert len({code.value for code in RequestCode} - ACL_1) == 158
    assert {code.value for code in RequestCode} >= ACL_1


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("SEND_MESSAGE_V2", 310),
        ("SEND_BATCH_MESSAGE", 320),
        ("LITE_PULL_MESSAGE", 361),
        ("CHECK_CLIENT_CONFIG", 46),
        ("UPDATE_AND_CREATE_SUBSCRIPTIONGROUP", 200),
        ("POP_MESSAGE", 200050),
        ("BATCH_ACK_MESSAGE", 200151),
    ],
)
def test_request_codes_are_those_of_java(name: str, number: int) -> None:
    assert RequestCode[name] == number


@pytest.mark.covers("S-PROD-19")
def test_the_retriable_codes_are_those_of_the_java_producer() -> None:
    assert (
        {code for code in ResponseCode if code.retriable}
        == RETRIABLE_CODES
        == {1, 2, 14, 16, 17, 204, 205, 1500}
    )


def test_languages_have_the_bytes_of_the_binary_header() -> None:
    assert [code.name for code in sorted(LanguageCode)][:4] == ["JAVA", "CPP", "DOTNET", "PYTHON"]
    assert LanguageCode(13).name == "NODE_JS"
