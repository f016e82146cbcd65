from sparrowmq.console.users import Role
from tests.console.layout.seeing import seen


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


async def test_a_visitor_may_what_the_role_and_the_lower_roles_allow():
    assert not seen(role=Role.VIEW).may(Role.OPERATE)
    assert seen(role=Role.OPERATE).may(Role.OPERATE)
