"""The check before each request: who sent it, and may they?"""

import json

import pytest

from sparrowmq.auth import request_check
from sparrowmq.auth.account_files import AccountFiles
from sparrowmq.auth.request_check import AccountCheck
from sparrowmq.errors import AccessDenied, DenialKind
from sparrowmq.protocol.requests import admin_headers, headers
from sparrowmq.protocol.signature import SigningKey, signed_fields
from tests.auth.asked import ADMIN, SAMPLE, USER, Call, beat, pull, received, send
from tests.traced import kept_bytes

CREATE = admin_headers.DeleteTopic("topicB")
NOBODY = "No accessKey is configured"
WRONG = "Check signature failed for accessKey=RocketMQ"
HOME = "192.168.1.9:5000"  # where rocketmq2 needs no signature
WHITE = "192.168.0.9:5000"  # where nobody needs anything


@pytest.fixture
def files(tmp_path):
    path = tmp_path / "plain_acl.yml"
    path.write_text(SAMPLE)
    return AccountFiles(path)


@pytest.fixture
def check(files):
    return AccountCheck(files, lambda offset: "topicB" if offset == 100 else None)


def denial(check, call: Call) -> str:
    """The reason, "" if it is allowed."""
    try:
        check(*call)
    except AccessDenied as error:
        assert error.code == 1
        assert error.remark.startswith("org.apache.rocketmq.acl.common.AclException: ")
        return error.remark.partition(": ")[2]
    return ""


@pytest.mark.covers("S-ACL-07", "S-ACL-08")
def test_who_does_not_show_an_account_is_denied(check):
    assert denial(check, received(send("topicB"))) == NOBODY
    assert denial(check, received(send("topicB"), b"", ("unknown", "12345678"))) == "No acl config for unknown"
    assert denial(check, received(send("topicB"), b"", ("", ""))) == "No acl config for "
    assert denial(check, received(send("topicB"), b"", (USER[0], "87654321"))) == WRONG
    assert denial(check, received(send("topicB"), b"", USER)) == ""


@pytest.mark.covers("S-ACL-08")
@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"b":"topicB"', b'"b":"topicX"'),
        (b'"e":"0"', b'"e":"1"'),
        (b"{", b'{"other":"x"'),
        (b"the body", b"the bodY"),
        (b'"Signature":"', b'"Signature":"A'),
        (b'"AccessKey":"RocketMQ"', b'"AccessKey":"rocketmq2"'),
        (b'"Signature"', b'"signature"'),
    ],
)
def test_whatever_is_changed_on_the_way_denies_it(check, before, after, is_first):
    if not is_first:
        assert denial(check, received(send("topicB"), b"the body", USER)) == ""

    def change(frame: bytes) -> bytes:
        assert before in frame
        if before == b"{":
            head = frame.index(b'"extFields":{') + len(b'"extFields":{')
            frame = frame[:head] + b'"other":"x",' + frame[head:]
        else:
            frame = frame.replace(before, after, 1)
        body = frame.index(b"the bod")
        header = frame[8:body]
        return (4 + len(header) + 8).to_bytes(4, "big") + len(header).to_bytes(4, "big") + frame[8:]

    call = received(send("topicB"), b"the body", USER, changed=change)
    reason = denial(check, call)
    assert reason.startswith("Check signature failed") or (b"rocketmq2" in after and "Check" in reason)


def test_a_send_may_write_its_values_in_any_way_and_have_other_fields_if_they_are_signed(check):
    fields = send("topicB").ext_fields() | {"k": "0", "unknown": "x"}
    fields |= signed_fields(fields, b"body", USER[0], SigningKey(USER[1]))

    def rewrite(wanted: dict[str, str]) -> Call:
        header = json.dumps({"code": 310, "extFields": wanted, "opaque": 1}, separators=(",", ":")).encode()
        sizes = (4 + len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big")
        return received(send("topicB"), b"body", USER, changed=lambda frame: sizes + header + b"body")

    assert denial(check, rewrite(fields)) == ""
    assert denial(check, rewrite(fields | {"e": "1"})) == WRONG
    del fields["unknown"]
    assert denial(check, rewrite(fields)) == WRONG


def test_an_account_that_has_sent_is_checked_again_for_other_topics_and_after_a_change(check, files):
    assert denial(check, received(send("topicB"), b"body", USER)) == ""
    assert denial(check, received(send("topicA"), b"body", USER)) == "No default permission for topic:topicA"
    files.main.write_text(SAMPLE.replace("topicB=PUB|SUB", "topicB=SUB"))
    files.poll()
    files.poll()
    assert denial(check, received(send("topicB"), b"body", USER)) == "No default permission for topic:topicB"


def test_names_that_no_topic_can_have_are_not_remembered(files, check):
    files.main.write_text(SAMPLE.replace("defaultTopicPerm: DENY", "defaultTopicPerm: PUB"))
    files.poll()
    files.poll()
    with kept_bytes() as kept:
        for number in range(20):
            assert denial(check, received(send("t" * 100_000 + str(number)), b"", USER)) == ""
    assert kept() < 1_000_000


def test_the_query_flag_may_be_added_after_signing_and_nothing_else(check):
    query = headers.QueryMessage("topicC", "key", 1, 0, 1)

    def flag(frame: bytes) -> bytes:
        added = (
            frame[8:]
            .replace(b'"extFields":{', b'"extFields":{"_UNIQUE_KEY_QUERY":"true",')
            .replace(b'"_UNIQUE_KEY_QUERY":"false",', b"")
        )
        return (4 + len(added)).to_bytes(4, "big") + len(added).to_bytes(4, "big") + added

    assert denial(check, received(query, b"", USER, changed=flag)) == ""


SAMPLE_ROWS = [
    ((send("topicA"), b"", USER), "No default permission for topic:topicA"),
    ((send("topicB"), b"", USER), ""),
    ((send("topicC"), b"", USER), "No default permission for topic:topicC"),
    ((send("topicD"), b"", USER), "No default permission for topic:topicD"),
    ((pull("topicB", "groupB"), b"", USER), ""),
    ((pull("topicC", "groupD"), b"", USER), ""),
    ((pull("topicB", "groupA"), b"", USER), "No default permission for group:groupA"),
    ((pull("topicA", "groupB"), b"", USER), "No default permission for topic:topicA"),
    ((headers.HeartBeat(), beat(producers=("groupA",)), USER), ""),
    (
        (headers.HeartBeat(), beat(("groupB", "topicB"), ("groupA", "topicB")), USER),
        "No default permission for group:groupA",
    ),
    ((headers.ConsumerSendMsgBack(100, "groupA", 0), b"", USER), "No default permission for group:groupA"),
    ((headers.ConsumerSendMsgBack(100, "groupB", 0), b"", USER), ""),
    ((send("%RETRY%groupA"), b"", USER), "No default permission for group:groupA"),
    ((send("%RETRY%groupB", "groupA"), b"", USER), ""),
    ((send("%RETRY%groupB", "CLIENT_INNER_PRODUCER"), b"", USER), ""),
    ((headers.ViewMessage(100), b"", USER), ""),
    ((send("RMQ_SYS_TRACE_TOPIC"), b"", USER), ""),
    ((headers.GetMaxOffset("topicA", 0), b"", USER), "No default permission for topic:topicA"),
    ((headers.GetMaxOffset("topicC", 0), b"", USER), ""),
    ((CREATE, b"", USER), "Need admin permission for request code=215, but accessKey=RocketMQ is not"),
    ((CREATE, b"", ADMIN), ""),
    ((send("topicA"), b"", ADMIN), ""),
]


@pytest.mark.covers("S-ACL-10")
@pytest.mark.parametrize(
    ("call", "reason"),
    SAMPLE_ROWS,
    ids=[f"{type(row[0][0]).__name__}-{number}" for number, row in enumerate(SAMPLE_ROWS)],
)
def test_accounts_of_the_sample_may_do_what_it_says(check, call, reason):
    assert denial(check, received(*call)) == reason


@pytest.mark.covers("S-ACL-02", "S-ACL-07")
def test_an_address_that_is_white_for_all_needs_nothing(check):
    for credentials in (None, USER, ("unknown", "12345678"), (USER[0], "87654321")):
        for request in (CREATE, send("topicA"), pull("topicA", "groupA")):
            assert denial(check, received(request, b"", credentials, WHITE)) == ""


@pytest.mark.covers("S-ACL-02", "S-ACL-07")
def test_an_accounts_own_address_needs_no_signature(check, files, tmp_path):
    unsigned = (ADMIN[0], "no secret of anybody")
    for request in (CREATE, send("topicA")):
        assert denial(check, received(request, b"", unsigned, HOME)) == ""
        assert denial(check, received(request, b"", unsigned)).startswith("Check signature failed")
        assert denial(check, received(request, b"", None, HOME)) == NOBODY
        assert denial(check, received(request, b"", (USER[0], "87654321"), HOME)) == WRONG
    files.main.write_text(SAMPLE.replace("admin: true", "admin: false"))
    files.poll()
    files.poll()
    for credentials in (unsigned, ADMIN):
        assert denial(check, received(send("topicA"), b"", credentials, HOME)) == ""
        assert "Need admin" in denial(check, received(CREATE, b"", credentials, HOME))


def test_only_a_signed_administrator_counts_as_one_for_secrets(check):
    for call, expected in [
        (received(CREATE, b"", ADMIN), True),
        (received(CREATE, b"", ADMIN, HOME), True),
        (received(CREATE, b"", ADMIN, WHITE), True),
        (received(CREATE, b"", (ADMIN[0], "no secret"), HOME), False),
        (received(CREATE, b"", ADMIN, WHITE), True),
        (received(CREATE, b"", (ADMIN[0], "no secret"), WHITE), False),
        (received(CREATE, b"", None, WHITE), False),
        (received(send("topicB"), b"", USER), False),
        (received(send("topicB"), b"", ADMIN), True),
        (received(pull("topicB", "groupB"), b"", USER), False),
    ]:
        assert denial(check, call) == ""
        peer = call[0]
        assert (peer.principal is not None and peer.principal.is_admin) is expected
    call = received(CREATE, b"", ADMIN)
    assert denial(check, call) == "" and call[0].principal.access_key == ADMIN[0]
    assert denial(check, (call[0], *received(CREATE)[1:])) == NOBODY and call[0].principal is None


def test_changed_accounts_and_addresses_count_at_once(check, files):
    white = received(send("topicA"), b"", None, WHITE)
    assert denial(check, white) == ""
    files.main.write_text("accounts:\n- {accessKey: RocketMQ, secretKey: 87654321, defaultTopicPerm: PUB}\n")
    files.poll()
    files.poll()
    assert denial(check, white) == NOBODY
    assert denial(check, received(send("topicA"), b"", (USER[0], "87654321"))) == ""
    assert denial(check, received(send("topicA"), b"", USER)) == WRONG
    assert denial(check, received(send("topicA"), b"", ADMIN)) == "No acl config for rocketmq2"


def test_many_addresses_are_remembered_and_not_without_end(check):
    for number in range(12_000):
        address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}:1"
        assert denial(check, received(CREATE, b"", None, address)) == NOBODY
    assert denial(check, received(CREATE, b"", None, "10.10.103.1:1")) == ""
    assert 1 < request_check._has.cache_info().currsize <= 10_000


def test_a_certificate_stands_for_the_signature_of_its_account(tmp_path):
    path = tmp_path / "plain_acl.yml"
    path.write_text(
        SAMPLE.replace("secretKey: 12345678\n    white", "secretKey: 12345678\n    certificate: shop\n    white", 1)
    )
    check = AccountCheck(AccountFiles(path), lambda offset: None)

    def asked(topic: str, certificate: str, credentials: tuple[str, str] | None = None) -> Call:
        call = received(send(topic), b"", credentials)
        call[0].certificate = certificate
        return call

    allowed = asked("topicB", "shop")
    assert denial(check, allowed) == "" and allowed[0].principal.access_key == USER[0]
    assert denial(check, asked("topicA", "shop")) == "No default permission for topic:topicA"
    assert denial(check, asked("topicB", "another")) == "No acl config for the certificate of another"
    assert denial(check, asked("topicB", "shop", (USER[0], "87654321"))) == WRONG
    assert denial(check, asked("topicB", "another", USER)) == ""


def test_accounts_of_brokers_copy_the_state_of_a_master_and_do_nothing_else_of_administrators(tmp_path):
    path = tmp_path / "plain_acl.yml"
    path.write_text(SAMPLE.replace("admin: false", "broker: true"))
    check = AccountCheck(AccountFiles(path), lambda offset: None)
    assert denial(check, received(admin_headers.GetAllTopicConfig(), b"", USER)) == ""
    assert "Need admin permission" in denial(check, received(CREATE, b"", USER))
    path.write_text(SAMPLE)
    check = AccountCheck(AccountFiles(path), lambda offset: None)
    assert "Need admin permission" in denial(check, received(admin_headers.GetAllTopicConfig(), b"", USER))


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (received(send("topicB")), DenialKind.UNKNOWN_ACCOUNT),
        (received(send("topicB"), b"", ("unknown", "12345678")), DenialKind.UNKNOWN_ACCOUNT),
        (received(send("topicB"), b"", (USER[0], "87654321")), DenialKind.WRONG_SIGNATURE),
        (received(send("topicA"), b"", USER), DenialKind.NO_PERMISSION),
        (received(CREATE, b"", USER), DenialKind.NEEDS_ADMIN),
    ],
    ids=lambda value: value.name if isinstance(value, DenialKind) else "",
)
def test_a_denial_says_of_which_kind_it_is(check, call, kind):
    with pytest.raises(AccessDenied) as error:
        check(*call)
    assert error.value.kind is kind
