from starlette.requests import Request

from sparrowmq.console.history.samples import Samples
from sparrowmq.console.layout.view import View
from sparrowmq.console.login.sessions import Session
from sparrowmq.console.reading.cluster_view import Look
from sparrowmq.console.users import Role
from sparrowmq.testing import ManualClock


def seen(path="/topics", query="", prefix="", root="", headers=(), args=None, role=Role.VIEW):
    """A view as a request makes it."""
    scope = {
        "type": "http",
        "path": root + path,
        "root_path": root,
        "query_string": query.encode(),
        "headers": [(key.encode(), value.encode()) for key, value in headers],
        "path_params": args or {},
        "state": {"session": Session("somebody", role, 1e9)},
    }
    look = Look("127.0.0.1:1")
    return View(Request(scope), look, Samples(look, ManualClock()), prefix)


def test_addresses_stand_below_the_prefix_with_everything_escaped():
    assert seen().url("topics", "%RETRY%a/b", page=2, filter="a b", none=None, empty="") == (
        "/topics/%25RETRY%25a%2Fb?page=2&filter=a+b"
    )
    assert seen(prefix="/mq").url("") == "/mq/"
    assert seen(prefix="/mq", headers=[("x-forwarded-prefix", "/tools")]).url("groups") == "/tools/mq/groups"


def test_the_path_is_the_one_below_the_prefix():
    assert seen("/topics/orders", root="/mq").path == "/topics/orders"
    assert seen("", root="/mq").path == "/"


def test_a_number_of_the_query_is_one_or_what_it_is_otherwise():
    view = seen(query="page=3&a=x&b=-1&c=99999999999&d=²")
    assert [view.number(key, 1) for key in ("page", "a", "b", "c", "d", "e")] == [3, 1, 1, 1, 1, 1]


async def test_it_carries_the_visitors_role_to_his_actions():
    assert not seen(role=Role.VIEW).actions.may("send")
    assert seen(role=Role.OPERATE).actions.may("send")
