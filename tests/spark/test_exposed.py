"""sparrowmq.spark.exposed: figures of a driver for Prometheus."""

import asyncio
import socket
import threading
import urllib.request

import pytest

from sparrowmq.errors import ConfigError
from sparrowmq.metrics.http_endpoint import Answer
from sparrowmq.remoting.listener import Listener
from sparrowmq.spark.exposed import exposed


def read(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def test_figures_are_looked_up_when_somebody_asks():
    rows = iter([1, 2])

    def declare(figures):
        figures.gauge("rows", "so many", lambda: next(rows))

    with exposed("127.0.0.1:0", declare) as address:
        assert '\nrows{node_type="spark"} 1.0\n' in read(f"http://{address}/metrics")
        assert '\nrows{node_type="spark"} 2.0\n' in read(f"http://{address}/metrics")
        assert read(f"http://{address}/healthz") == "ok\n"
    with pytest.raises(OSError):  # refused, or cut off
        read(f"http://{address}/metrics")


def test_other_pages_are_answered_beside_the_figures():
    async def page(_query):
        return Answer(200, b"<p>lake</p>", "text/html")

    with exposed("127.0.0.1:0", lambda figures: None, {"/": page}) as address:
        assert read(f"http://{address}/") == "<p>lake</p>"
        assert read(f"http://{address}/healthz") == "ok\n"


def before_it_listens(monkeypatch, happens):
    """Lets `happens` run between the binding of a port and its listening, as a busy machine would."""
    opens = Listener.open

    async def later(door, make, backlog):
        await happens(door)
        await opens(door, make, backlog)

    monkeypatch.setattr(Listener, "open", later)


def test_whoever_is_given_the_address_is_answered_there(monkeypatch):
    before_it_listens(monkeypatch, lambda _: asyncio.sleep(0.3))
    with exposed("127.0.0.1:0", lambda figures: None) as address:
        assert read(f"http://{address}/healthz") == "ok\n"


def test_a_port_that_another_listens_on_by_then_is_told(monkeypatch):
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

        async def taken(door):
            other.bind((door.host, door.port))
            other.listen()

        before_it_listens(monkeypatch, taken)
        with pytest.raises(ConfigError, match="cannot listen"), exposed("127.0.0.1:0", lambda figures: None):
            pass


def test_without_an_address_nobody_listens():
    with exposed(None, lambda figures: None) as address:
        assert address is None


@pytest.mark.parametrize("address", ["", "5558", ":5558", "localhost:", "localhost:http", "localhost:70000"])
def test_what_is_no_address_is_told(address):
    with pytest.raises(ConfigError, match="write host:port"), exposed(address, lambda figures: None):
        pass


def test_an_address_that_other_machines_reach_has_to_be_meant():
    with (
        pytest.raises(ConfigError, match=r"set insecure .* if the network is trusted"),
        exposed("0.0.0.0:0", lambda figures: None),
    ):
        pass
    with exposed("0.0.0.0:0", lambda figures: None, insecure=True) as address:
        assert address is not None
        assert read(f"http://127.0.0.1:{address.rpartition(':')[2]}/healthz") == "ok\n"


def test_a_port_that_is_taken_is_told():
    with exposed("127.0.0.1:0", lambda figures: None) as address:
        assert address is not None
        with pytest.raises(ConfigError, match="cannot listen"), exposed(address, lambda figures: None):
            pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_figures_that_end_their_thread_do_not_fail_what_they_are_of():
    def leave():
        raise SystemExit

    with exposed("127.0.0.1:0", lambda figures: figures.gauge("rows", "so many", leave)) as address:
        with pytest.raises(OSError):
            read(f"http://{address}/metrics")
        for thread in threading.enumerate():
            if thread.name == "metrics":
                thread.join(10)
