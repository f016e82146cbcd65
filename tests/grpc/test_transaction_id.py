"""Ids of transactions."""

import base64

import pytest

from sparrowmq.errors import RemoteError
from sparrowmq.grpc.send_methods import TransactionId


def test_id_says_where_its_half_message_is():
    made = TransactionId("broker-a", 7, 1337, "01AB")
    assert TransactionId.parse(str(made)) == made


@pytest.mark.parametrize(
    "words",
    [
        "v1 a 1 2",
        "v2 a 1 2 x",
        "v1 a -1 2 x",
        "v1 a 1 b x",
        "v1  1 2 x",
        "v1 a 1 2 x y",
        "v1 a 1 " + "9" * 20 + " x",
    ],
)
def test_other_words_are_refused(words):
    with pytest.raises(RemoteError) as caught:
        TransactionId.parse(base64.urlsafe_b64encode(words.encode()).decode())
    assert caught.value.code == 40008


@pytest.mark.parametrize("text", ["", "nonsense!", "ä", "01AB"])
def test_text_in_another_form_is_refused(text):
    with pytest.raises(RemoteError):
        TransactionId.parse(text)
