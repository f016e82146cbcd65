"""sparrowmq.spark.pipelines.lake.retry_policy: which faults are waited out, and what their texts do not show."""

import pytest

pytest.importorskip("pyspark")

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.lake.retry_policy import (
    RetryPolicy,
    advice_for,
    is_transient,
    mask_secrets,
    secret_values,
)

# As Arrow, deltalake, PostgreSQL's driver and pyiceberg wrote them on 2026-11-23, against moto, MinIO and servers
# that were stopped.
PASSING = [
    "When getting information for key 'x': AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 7",
    "Kernel error -> Generic S3 error \x1b[31m↳\x1b[0m Error performing GET http://h:1 error sending request",
    "AWS Error SLOW_DOWN during PutObject operation: Please reduce your request rate.",
    "Server returned non-2xx status code 503 Service Unavailable",
    "(psycopg.OperationalError) connection failed: Connection refused",
]
LASTING = {
    "AWS Error NO_SUCH_BUCKET during CreateMultipartUpload operation": "make the bucket, or correct its name",
    "404 Not Found <Error><Code>NoSuchBucket</Code>": "make the bucket, or correct its name",
    "AWS Error INVALID_ACCESS_KEY_ID during ListObjectsV2 operation": "correct AWS_ACCESS_KEY_ID",
    "AWS Error SIGNATURE_DOES_NOT_MATCH during PutObject operation": "correct AWS_SECRET_ACCESS_KEY",
    "AWS Error ACCESS_DENIED during HeadBucket operation: No response body.": "give these keys the rights",
    "403 Forbidden <Error><Code>InvalidAccessKeyId</Code>": "correct AWS_ACCESS_KEY_ID",
    "OperationalError: FATAL:  password authentication failed for user": "correct the user or the password",
}


def no_pause(seconds: float) -> None:
    pytest.fail(f"waited {seconds} s")


class Away:
    """Fails some times, and answers then."""

    def __init__(self, times, why=PASSING[0]):
        self.left, self.error = times, OSError(why)

    def __call__(self):
        self.left -= 1
        if self.left >= 0:
            raise self.error
        return "here"


def test_a_fault_that_passes_is_waited_out():
    pauses: list[float] = []
    lines: list[str] = []
    patience = RetryPolicy("s3://bucket/orders", lines.append, sleep=pauses.append)
    assert patience.call(Away(7)) == "here"
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    assert "s3://bucket/orders is away (OSError: When getting information" in lines[0]
    assert lines[1].endswith("trying again in 2 s")


def test_it_is_not_waited_for_ever():
    pauses: list[float] = []
    with pytest.raises(ConnectionError, match="s3://b/o was away for 301 s"):
        RetryPolicy("s3://b/o", sleep=pauses.append).call(Away(1000))
    assert sum(pauses) == 301


@pytest.mark.parametrize("why", PASSING)
def test_faults_that_pass(why):
    assert is_transient(why)
    assert advice_for(why) is None


@pytest.mark.parametrize(("why", "advice"), LASTING.items())
def test_faults_that_stay_are_said_at_once_with_what_to_do(why, advice):
    with pytest.raises(ConfigError, match=advice) as raised:
        RetryPolicy("s3://bucket/orders", sleep=no_pause).call(Away(1, why))
    assert str(raised.value).startswith("s3://bucket/orders: OSError: ")


def test_other_errors_are_left_as_they_are():
    with pytest.raises(OSError, match="no space left"):
        RetryPolicy("it", sleep=no_pause).call(Away(1, "no space left"))
    with pytest.raises(ZeroDivisionError):
        RetryPolicy("it", sleep=no_pause).call(lambda: 1 // 0)


def test_no_text_shows_a_secret():
    secrets = secret_values(
        {"token": "s3cret-token", "uri": "http://10.0.0.1"}, {"AWS_SECRET_ACCESS_KEY": "s3cret-key"}
    )
    assert secrets == ["s3cret-token", "s3cret-key"]
    lines: list[str] = []
    why = f"{PASSING[4]}: postgresql://ada:s3cret-word@10.0.0.1/lake s3cret-token s3cret-key"
    patience = RetryPolicy("it", lines.append, secrets, limit_s=1, sleep=lambda _s: None)
    with pytest.raises(ConnectionError) as raised:
        patience.call(Away(9, why))
    for text in (str(raised.value), *lines):
        assert "postgresql://ada:***@10.0.0.1/lake *** ***" in text
        assert "s3cret" not in text
    assert mask_secrets("plain", []) == "plain"
