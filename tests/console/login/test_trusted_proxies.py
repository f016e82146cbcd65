"""A real console, and visitors who send the headers of proxies."""

import http.client
import urllib.parse

import pytest

from sparrowmq.console.http_connections import TrustedProxies
from sparrowmq.console.login import MAX_FAILURES_OF_PLACE


async def seen_by(client, headers, proxies):
    """What an application sees of a request."""
    found = []

    async def inside(scope, receive, send):
        found.append(scope)

    async def nothing(*_):
        return {}

    scope = {"type": "http", "scheme": "http", "client": (client, 5), "headers": headers}
    await TrustedProxies(inside, proxies)(scope, nothing, nothing)
    return found[0]


SENT = [
    (b"x-forwarded-for", b"1.2.3.4"),
    (b"x-forwarded-proto", b"https"),
    (b"x-forwarded-host", b"mq.example.org"),
    (b"x-forwarded-prefix", b"/tools"),
    (b"accept", b"text/html"),
]


@pytest.mark.parametrize("proxies", [["10.0.0.1"], ["192.168.0.0/16", "10.0.0.0/24"]])
async def test_a_trusted_proxy_is_believed(proxies):
    scope = await seen_by("10.0.0.1", SENT, proxies)
    assert (scope["client"][0], scope["scheme"], scope["headers"]) == ("1.2.3.4", "https", SENT)


@pytest.mark.parametrize(("client", "proxies"), [("10.0.0.1", []), ("10.0.1.1", ["10.0.0.0/24"]), ("x", ["::/0"])])
async def test_another_address_is_not_believed(client, proxies):
    scope = await seen_by(client, SENT, proxies)
    assert (scope["client"][0], scope["scheme"]) == (client, "http")
    assert scope["headers"] == [(b"accept", b"text/html")]


async def test_what_a_visitor_writes_before_the_proxy_does_not_count():
    sent = [(b"x-forwarded-for", b"6.6.6.6, 1.2.3.4")]
    assert (await seen_by("10.0.0.1", sent, ["10.0.0.1"]))["client"][0] == "1.2.3.4"


def log_in(url, number, name="vera"):
    """One wrong attempt, from what seems to be another address."""
    address = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=30)
    form = urllib.parse.urlencode({"name": name, "password": "wrong"})
    headers = {"x-forwarded-for": f"10.1.0.{number}", "content-type": "application/x-www-form-urlencoded"}
    connection.request("POST", "/login", form, headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


@pytest.mark.slow
def test_a_changing_header_does_not_avoid_the_pause_of_a_real_console(stage):
    name = "made-up-for-the-pause"
    statuses = [log_in(stage.url, number, name) for number in range(MAX_FAILURES_OF_PLACE + 2)]
    assert statuses == [403] * MAX_FAILURES_OF_PLACE + [429, 429]
    assert log_in(stage.url, 1, "another-made-up") == 403
