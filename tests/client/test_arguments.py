"""Wrong arguments of a program: each is told where it is given, with what to write instead.

Nothing listens at the address of the client, so that a row which is not refused at once fails otherwise.
"""

from concurrent.futures import Future

import pytest

import sparrowmq.sync
from sparrowmq.client.callbacks import Callbacks, Started
from sparrowmq.client.client import Client, connect
from sparrowmq.errors import ConfigError


def client() -> Client:
    return connect("127.0.0.1:1")


# What is called, and words of the answer.
CALLABLES = [
    (lambda mq: mq.subscribe("t", "paid", group="g"), "handler='paid' cannot be called.* tag="),
    (lambda mq: mq.subscribe("t", 5, group="g", batch=2), "handler=5 cannot be called"),
    (lambda mq: mq.subscribe("t", group="g", on_assigned="f"), "on_assigned='f' cannot .* list of queues"),
    (lambda mq: mq.subscribe("t", group="g", on_revoked=[]), "on_revoked=.* cannot be called"),
    (lambda mq: mq.pull_consumer(group="g", on_assigned=5), "on_assigned=5 cannot be called"),
    (lambda mq: mq.pull_consumer(group="g", on_revoked=5), "on_revoked=5 cannot be called"),
    (lambda mq: mq.producer("p", check="f"), "check='f' cannot be called"),
    (lambda mq: mq.check()("f"), "check='f' cannot be called"),
    (lambda mq: mq.handler("t", group="g")("f"), "handler='f' cannot be called; .*@mq.handler"),
    (lambda mq: mq.middleware("f"), "middleware='f' cannot be called"),
]


@pytest.mark.parametrize(("call", "words"), CALLABLES)
def test_what_cannot_be_called_is_told_at_once(call, words):
    with pytest.raises(ConfigError, match=words):
        call(client())


@pytest.mark.parametrize(("call", "words"), CALLABLES)
def test_what_cannot_be_called_is_told_at_once_without_async(call, words):
    with sparrowmq.sync.connect("127.0.0.1:1") as mq, pytest.raises(ConfigError, match=words):
        call(mq)


async def test_whom_to_tell_of_queues_is_looked_at_first():
    with pytest.raises(ConfigError, match="changed='f' cannot be called"):
        await client().pull_consumer(group="g").watch("t", "f")  # type: ignore[arg-type]
    with (
        sparrowmq.sync.connect("127.0.0.1:1") as mq,
        pytest.raises(ConfigError, match="changed='f' cannot be called"),
    ):
        mq.pull_consumer(group="g").watch("t", "f")  # type: ignore[arg-type]


def test_a_callback_of_a_future_is_looked_at_too():
    with pytest.raises(ConfigError, match="fn=5 cannot be called"):
        Started(Future[int](), Callbacks()).add_done_callback(5)  # type: ignore[arg-type]
