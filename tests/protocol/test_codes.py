"""Codes: as many as Java has, and the numbers that are easily got wrong."""

import pytest

from sparrowmq.errors import RETRIABLE_CODES
from sparrowmq.protocol.codes import LanguageCode, RequestCode, ResponseCode

# The numbers of RequestCode in Apache's jars: 4.9.7's, whose 50 to 54 are gone in 5.3, and 5.4.0's.
JAVAS = """
10-15 17-18 21-23 25-43 45-47 50-54 60-61 100-106 200-217 219-225 300-329 343 345 351-355 361 370 400-402 513 901-908
1001-1018 2001-2004 3001-3010 5001 200050-200056 200151
"""
OURS = {
    RequestCode.STAGE_BATCH,
    RequestCode.COMMIT_BATCH,
    RequestCode.HAND_OVER_LEAD,
    RequestCode.ELECT_MEMBER,
    RequestCode.GET_DIAGNOSIS,
    RequestCode.RESTART_BROKER,
    RequestCode.COPY_BATCH,
}


def test_the_requests_are_those_of_java() -> None:
    ends = [[int(end) for end in span.split("-")] for span in JAVAS.split()]
    assert all(5001 < code < 2**15 for code in OURS)
    assert [code.value for code in sorted(set(RequestCode) - OURS)] == [
        code for span in ends for code in range(span[0], span[-1] + 1)
    ]


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
    codes = {ResponseCode(code) for code in RETRIABLE_CODES}
    assert codes == {1, 2, 14, 16, 17, 204, 205, 1500}


def test_languages_have_the_bytes_of_the_binary_header() -> None:
    assert [code.name for code in sorted(LanguageCode)][:4] == ["JAVA", "CPP", "DOTNET", "PYTHON"]
    assert LanguageCode(13).name == "NODE_JS"
