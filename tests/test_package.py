"""The public names, and that importing them costs nothing until they are used."""

import subprocess
import sys

import pytest

import sparrowmq

NAMES = [
    "Client",
    "Consumer",
    "Message",
    "MessageQueue",
    "NoRoute",
    "Producer",
    "ProducerSettings",
    "PullConsumer",
    "ReceivedMessage",
    "SendFailed",
    "SendResult",
    "SendStatus",
    "SparrowError",
    "connect",
    "errors",
    "sync",
]


def test_these_are_the_public_names():
    assert sorted(sparrowmq.__all__) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_each_is_loaded_when_it_is_used(name):
    assert getattr(sparrowmq, name).__name__.rpartition(".")[2] == name


def test_a_wrong_name_is_an_error():
    with pytest.raises(AttributeError, match="no attribute 'Conect'"):
        sparrowmq.Conect  # noqa: B018


def test_importing_the_package_loads_nothing_else():
    program = (
        "import sys, sparrowmq; print(len([name for name in sys.modules if name.startswith('sparrowmq')]))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "2"  # itself, and `compiled`, which chooses what runs
