"""Every request of the table in the name of twelve people: as the rules say, and nothing allowed that Apache's denies.

What Apache's 4.9.7 answers is recorded; the slow test asks it again.
"""

import sys

import pytest

from sparrowmq.protocol.requests.request_table import BY_CODE, ROWS, Access, Role
from sparrowmq.testing.background import BackgroundCluster
from tests.interop import access_matrix as matrix
from tests.interop.access_matrix import CODES, GROUP, PEOPLE, TOPIC
from tests.interop.apache import free_ports

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only on Linux are all of 127.0.0.0/8 this machine")

SERVED = [int(row.code) for row in ROWS if row.served_by & Role.BROKER]
ACCOUNTS = ("DENY", "PUB", "SUB", "PUB|SUB")
HOME = "account's address"
NO_PERMISSION = {f"No default permission for {what}" for what in (f"topic:{TOPIC}", f"group:{GROUP}")}
# Who has the permission, by what the request needs.
HAVE = {
    Access.READ: {"SUB", "PUB|SUB", HOME},
    Access.WRITE: {"PUB", "PUB|SUB", HOME},
    Access.CLIENT: {*ACCOUNTS, HOME},
    Access.ADMIN: set(),
    Access.CLUSTER: set(),
}
# Requests to be known, whose body or fields name a group.
NAME_A_GROUP = {34, 35, 46}
REPLIES = {324, 325}  # they go to whoever asked, and need no topic
OF_USERS = range(3001, 3011)  # not served while accounts are in a file, so by this broker
QUEUE_OFFSETS = {29, 30, 31, 32}  # for those who may send to the topic, or consume it

# Where ours denies and Apache's does not; docs/understand/differences.md tells why.
# All other codes that administrators have, too.
STRICTER = {
    **{code: {"DENY", "PUB"} for code in (14, 33, 41, 42, 46, 361)},
    **{code: {"DENY"} for code in QUEUE_OFFSETS},
    320: {"DENY", "SUB"},
    **{code: {HOME} for code in (17, 25, 200, 207, 215)},
}
# Served here and unknown to 4.9.7, so there is nothing to compare but what the rules say.
ONLY_HERE = {code for code in SERVED if matrix.recorded()["admin"].get(code) == "unserved"}


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    folder = tmp_path_factory.mktemp("matrix")
    (folder / "plain_acl.yml").write_text(matrix.ACCOUNTS)
    port = free_ports(1)[0]
    with BackgroundCluster(folder / "stores", port=port, acl=True, acl_file=folder / "plain_acl.yml"):
        yield matrix.play(port)


def is_allowed(answer: str) -> bool:
    return answer == ""


def may(name: str, code: int) -> bool:
    """What the rules say about an account, or an account's address, with the right signature."""
    if code in QUEUE_OFFSETS:
        return name in HAVE[Access.READ] | HAVE[Access.WRITE]
    row = BY_CODE[code]
    access = Access.READ if code in NAME_A_GROUP else Access.CLIENT if code in REPLIES else row.access
    return name in HAVE[access]


@pytest.mark.covers("S-ACL-07", "S-ACL-08")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nobody", "No accessKey is configured"),
        ("unknown", "No acl config for stranger"),
        ("wrong secret", "Check signature failed for accessKey=administrator"),
        ("field changed", "Check signature failed for accessKey=administrator"),
        ("body changed", "Check signature failed for accessKey=administrator"),
    ],
)
def test_without_a_right_signature_everything_is_denied_in_apaches_words(ours, name, reason):
    assert {code: ours[name][code] for code in SERVED} == dict.fromkeys(SERVED, reason)
    assert set(matrix.recorded()[name].values()) == {reason}


@pytest.mark.covers("S-ACL-04", "S-ACL-06")
@pytest.mark.parametrize("name", [*ACCOUNTS, HOME])
def test_each_account_may_do_what_its_permissions_say(ours, name):
    assert {code for code in SERVED if is_allowed(ours[name][code])} == {code for code in SERVED if may(name, code)}


@pytest.mark.parametrize("name", ["admin", "everybody's address"])
def test_administrators_and_white_addresses_may_do_everything(ours, name):
    refused = {code: ours[name][code] for code in SERVED if not is_allowed(ours[name][code])}
    assert refused == dict.fromkeys((code for code in refused if code in OF_USERS), "unserved")


def test_nothing_is_allowed_that_apaches_denies(ours):
    theirs = matrix.recorded()
    laxer = [
        (person.name, code)
        for person in PEOPLE
        for code in CODES
        if is_allowed(ours[person.name][code]) and theirs[person.name].get(code, "") not in ("", "unserved")
    ]
    assert laxer == []


def test_what_is_denied_here_alone_is_what_the_page_says(ours):
    theirs = matrix.recorded()
    stricter = {}
    for code in SERVED:
        people = {
            name
            for name in (*ACCOUNTS, HOME, "admin", "everybody's address")
            if not is_allowed(ours[name][code]) and is_allowed(theirs[name].get(code, "unserved"))
        }
        if people:
            stricter[code] = people
    expected = {
        code: {*ACCOUNTS, HOME}
        for code in SERVED
        if BY_CODE[code].access in (Access.ADMIN, Access.CLUSTER) and code not in ONLY_HERE
    }
    expected |= {code: people for code, people in STRICTER.items() if code in SERVED}
    assert stricter == {code: people for code, people in expected.items() if code not in ONLY_HERE}


def test_where_both_deny_the_words_are_the_same(ours):
    theirs = matrix.recorded()
    for name in (*ACCOUNTS, HOME):
        for code in SERVED:
            mine, other = ours[name][code], theirs[name].get(code, "")
            if mine and other not in ("", "unserved"):
                if mine.startswith("No default permission"):  # Java asks about topic and group in no certain order
                    assert other in (
                        f"No default permission for topic:{TOPIC}",
                        "No default permission for group:matrix",
                    )
                else:
                    assert mine == other, (name, code)


def test_all_codes_were_recorded():
    missing = [code for code in SERVED if code not in matrix.recorded()["admin"]]
    assert missing == [], "run python -m tests.interop.access_matrix"


@pytest.mark.nightly
@pytest.mark.slow
def test_apaches_answers_what_was_recorded():
    assert matrix.record() == matrix.recorded()
