"""The door, as an ASGI application before one that tells who came."""

import warnings
from time import thread_time

import pytest
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.websockets import WebSocketDisconnect

from sparrowmq.console.console_settings import ConsoleSettings
from sparrowmq.console.login import MAX_FAILURES_OF_PLACE, Guard, cookie_in, forwarded_prefix, is_from_here
from sparrowmq.console.users import Account, Accounts, Role, hash_password, read_accounts
from sparrowmq.testing import ManualClock

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it wants a newer httpx than there is
    from starlette.testclient import TestClient

MAX_KEPT = hash_password("a long password")
ACCOUNTS = Accounts({"olga": Account("olga", Role.OPERATE, MAX_KEPT)})
HTML = {"accept": "text/html"}
RIGHT = {"name": "olga", "password": "a long password"}


async def inside(scope, receive, send):
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.close"})
        return
    session, cookies = HTTPConnection(scope).state.session, HTTPConnection(scope).cookies
    seen = f", dark and with{'' if 'slow' in cookies else 'out'} slow" if "dark" in cookies else ""
    await PlainTextResponse(f"{session.name} {session.role.name}{seen}")(scope, receive, send)


def door(**settings):
    guard = Guard(inside, ConsoleSettings(ACCOUNTS, **settings), ManualClock())
    return TestClient(guard, base_url="http://testserver", follow_redirects=False)


@pytest.fixture
def client():
    return door()


def log_in(client, path="/login", **fields):
    return client.post(path, data=RIGHT | fields)


def test_a_stranger_is_sent_to_the_log_in_page_and_then_on(client):
    asked = client.get("/topics?filter=a", headers=HTML)
    assert (asked.status_code, asked.headers["location"]) == (303, "/login?next=/topics%3Ffilter%3Da")
    shown = client.get(asked.headers["location"])
    assert shown.status_code == 200 and 'name="next" value="/topics?filter=a"' in shown.text
    entered = log_in(client, next="/topics?filter=a")
    assert (entered.status_code, entered.headers["location"]) == (303, "/topics?filter=a")
    assert client.get("/topics").text == "olga OPERATE"


def test_without_a_log_in_there_is_nothing_but_the_page_for_it(client):
    for path in ("/", "/topics", "/_nicegui/3/static/x.js", "/_nicegui_ws/socket.io/"):
        assert client.get(path).status_code == 401
    assert client.post("/topics").status_code == 401
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/_nicegui_ws/socket.io/"):
        pass
    assert client.get("/healthz").text == "ok\n"


def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(client):
    cookie = log_in(client).headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=lax" in cookie and "Path=/" in cookie and "Secure" not in cookie
    safe = TestClient(client.app, base_url="https://testserver", follow_redirects=False)
    assert "Secure" in log_in(safe).headers["set-cookie"]


def test_a_cookie_is_found_among_others_in_linear_time():
    for cookies, value in (
        ("", None),
        ("a=1", "1"),
        ("b=2; a=1.x==; c", "1.x=="),
        ("a=1;  a = 2 ;aa=3", "2"),
        ("b=a=1; ;", None),
        ('a="' + "\\" * 30_000 + '"', '"' + "\\" * 30_000 + '"'),
    ):
        before_s = thread_time()
        assert cookie_in({"cookie": cookies}, "a") == value
        assert thread_time() - before_s < 0.05


def test_pages_get_no_cookie_with_quotes(client):
    """FastAPI parses all cookies for each page, in quadratic time."""
    log_in(client)
    client.cookies.set("dark", "1")
    client.cookies.set("slow", '"' + "\\" * 9 + '"')
    assert client.get("/").text == "olga OPERATE, dark and without slow"


@pytest.mark.parametrize("changed", [{}, {"olga": Account("olga", Role.VIEW, MAX_KEPT)}], ids=["gone", "another role"])
def test_a_user_who_changes_has_to_log_in_again(changed):
    now = [None]
    accounts = Accounts({"olga": Account("olga", Role.OPERATE, MAX_KEPT)}, now.pop)
    guard = Guard(inside, ConsoleSettings(accounts), ManualClock())
    client = TestClient(guard, base_url="http://testserver", follow_redirects=False)
    log_in(client)
    guard.renew()
    assert client.get("/").text == "olga OPERATE"
    now.append(changed)
    guard.renew()
    assert client.get("/").status_code == 401


def test_a_wrong_file_of_users_ends_no_session(tmp_path, caplog):
    path = tmp_path / "users"
    path.write_text(Account("olga", Role.OPERATE, MAX_KEPT).line())
    guard = Guard(inside, ConsoleSettings(read_accounts(path)), ManualClock())
    client = TestClient(guard, base_url="http://testserver", follow_redirects=False)
    log_in(client)
    path.write_text("olga")
    for _ in range(3):
        guard.renew()
    assert client.get("/").text == "olga OPERATE"
    assert [each.message for each in caplog.records if each.levelname == "WARNING"] == [
        f"the users stay as they were: {path}:1: this is not a password hash as --make-user prints it"
    ]


@pytest.mark.parametrize("fields", [{"password": "wrong"}, {"name": "nobody"}, {"password": ""}, {"name": "x" * 9000}])
def test_a_wrong_log_in_gets_no_cookie_and_is_not_told_why(client, fields):
    answer = log_in(client, **fields)
    assert answer.status_code == 403 and "set-cookie" not in answer.headers
    assert "The user or the password is wrong." in answer.text


def test_attempts_are_bounded_even_for_the_right_password(client):
    for _ in range(MAX_FAILURES_OF_PLACE):
        assert log_in(client, password="wrong").status_code == 403
    refused = log_in(client)
    assert refused.status_code == 429 and "Too many attempts" in refused.text and "set-cookie" not in refused.headers


def test_log_out_ends_the_session_and_needs_a_post(client):
    log_in(client)
    cookie = client.cookies.get("sparrowmq_8082")
    assert client.get("/logout").text == "olga OPERATE", "an image on another site could do that"
    assert client.post("/logout").headers["location"] == "/login"
    client.cookies.set("sparrowmq_8082", cookie)
    assert client.get("/").status_code == 401


def test_what_another_site_sends_with_the_visitors_cookie_is_refused(client):
    log_in(client)
    foreign = {"origin": "https://evil.example"}
    assert client.post("/logout", headers=foreign).status_code == 403
    assert client.post("/login", data=RIGHT, headers=foreign).status_code == 403
    assert client.post("/login", data=RIGHT, headers={"origin": "http://["}).status_code == 403
    assert client.post("/logout", headers={"sec-fetch-site": "cross-site"}).status_code == 403
    polling = "/_nicegui_ws/socket.io/?EIO=4&transport=polling"
    assert client.get(polling, headers=foreign).status_code == 403
    assert client.get("/", headers={"origin": "http://testserver:3000"}).status_code == 403
    assert client.get("/", headers={"sec-fetch-site": "cross-site"}).status_code == 200, "a link leads here"
    with (
        pytest.raises(WebSocketDisconnect) as refused,
        client.websocket_connect("/_nicegui_ws/socket.io/", headers=foreign),
    ):
        pass
    assert refused.value.code == 1008
    with client.websocket_connect("/_nicegui_ws/socket.io/", headers={"origin": "http://testserver"}):
        pass
    assert client.get("/").status_code == 200


def test_a_proxy_may_say_under_which_name_it_is_reached():
    headers = {"host": "127.0.0.1:8082", "origin": "https://mq.example.org"}
    assert not is_from_here(headers, changes=True)
    assert is_from_here(headers | {"x-forwarded-host": "mq.example.org"}, changes=True)
    assert not is_from_here({"origin": "null", "host": ""}, changes=True)


def test_a_prefix_stands_before_everything():
    client = door(prefix="/mq")
    assert client.get("/mq/topics", headers=HTML).headers["location"] == "/mq/login?next=/topics"
    assert log_in(client, "/mq/login", next="/topics").headers["location"] == "/mq/topics"
    assert "Path=/mq/" in log_in(client, "/mq/login").headers["set-cookie"]


def test_a_prefix_that_a_proxy_took_away_comes_back():
    headers = HTML | {"x-forwarded-prefix": "/tools"}
    assert door().get("/topics", headers=headers).headers["location"] == "/tools/login?next=/topics"
    for foreign in ("//evil.example", "https://evil.example", "evil", "/\\evil"):
        assert forwarded_prefix({"x-forwarded-prefix": foreign}) == ""


def test_a_read_only_console_has_viewers_alone():
    client = door(read_only=True)
    log_in(client)
    assert client.get("/").text == "olga VIEW"


def test_no_answer_may_be_framed_or_load_anything_foreign(client):
    for answer in (client.get("/login"), client.get("/x"), log_in(client), client.get("/")):
        assert answer.headers["x-frame-options"] == "DENY"
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


def test_a_pause_spares_other_accounts_and_the_browsers_that_the_account_has_used(client):
    log_in(client)
    known = dict(client.cookies)
    client.cookies.clear()
    for _ in range(MAX_FAILURES_OF_PLACE):
        assert log_in(client, password="wrong").status_code == 403
    assert log_in(client).status_code == 429
    assert log_in(client, name="another", password="wrong").status_code == 403
    client.cookies.update({"sparrowmq_known_8082": known["sparrowmq_known_8082"]})
    assert log_in(client).status_code == 303


def test_a_refusal_as_foreign_says_what_a_proxy_needs(client):
    refused = client.post("/login", data=RIGHT, headers={"origin": "https://mq.example.org"})
    assert refused.status_code == 403 and "--trusted-proxy" in refused.text
