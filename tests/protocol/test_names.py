"""The validator of names, and the names with a meaning."""

import os.path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.errors import InvalidName
from sparrowmq.protocol import names

GOOD = ["Orders", "a", "%RETRY%billing", "ns%Orders", "A|B", "x_y-z", "9" * 120]
BAD = [
    "",
    " ",
    "\t\n",
    "a b",
    "a/b",
    "../../x",
    "%RETRY%../..",
    "a.b",
    "Orders\n",
    "\0",
    "名",
    "a\\b",
    "\uff0f",
]


@pytest.mark.parametrize("name", GOOD)
def test_a_good_name_is_returned(name: str) -> None:
    assert names.check_topic(name) == names.check_group(name) == name


@pytest.mark.parametrize("name", BAD)
def test_a_bad_name_is_refused_everywhere(name: str) -> None:
    for check in (names.check_topic, names.check_group, names.check_new_topic):
        with pytest.raises(InvalidName):
            check(name)


@given(st.text())
def test_what_passes_is_one_plain_path_component(name: str) -> None:
    try:
        names.check_topic(name)
        names.check_broker_name(name)
    except InvalidName:
        return
    assert os.path.normpath(os.path.join("folder", name)) == os.path.join("folder", name)
    assert name.isascii() and name.isprintable() and os.path.basename(name) == name


@pytest.mark.parametrize(("check", "length"), [(names.check_topic, 127), (names.check_group, 120)])
def test_the_length_limits(check, length: int) -> None:
    assert check("x" * length)
    with pytest.raises(InvalidName, match=f"{length + 1} characters, {length} are allowed"):
        check("x" * (length + 1))


def test_the_longest_group_has_a_retry_topic() -> None:
    assert names.check_topic(names.retry_topic("g" * names.MAX_GROUP_LENGTH))


@pytest.mark.covers("S-RETRY-06")
@pytest.mark.covers("S-RETRY-03")
def test_retry_and_dead_letter_topics_name_their_group() -> None:
    assert names.retry_topic("g") == "%RETRY%g"
    assert names.dlq_topic("g") == "%DLQ%g"
    assert [names.group_of(topic) for topic in ("%RETRY%g", "%DLQ%g", "g")] == ["g", "g", None]


def test_system_topics_cannot_be_created() -> None:
    for topic in ["TBW102", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX"]:
        with pytest.raises(InvalidName, match="conflict with system topic"):
            names.check_new_topic(topic)
    assert names.check_new_topic("Orders") == "Orders"


def test_clients_may_not_send_to_the_brokers_own_topics() -> None:
    assert all(map(names.is_closed_to_clients, ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"]))
    assert not any(map(names.is_closed_to_clients, ["TBW102", "RMQ_SYS_TRACE_TOPIC", "BenchmarkTest", "Orders"]))


def test_system_groups_are_known() -> None:
    assert all(map(names.is_system_group, ["CID_RMQ_SYS_TRANS", "TOOLS_CONSUMER", "DEFAULT_PRODUCER"]))
    assert not names.is_system_group("billing")


@pytest.mark.parametrize("name", ["broker-a", "host.example.com", "a.b"])
def test_broker_names_may_have_dots(name: str) -> None:
    assert names.check_broker_name(name) == name


@pytest.mark.parametrize("name", [".", "..", "a/b", "../x", ""])
def test_broker_names_stay_in_their_folder(name: str) -> None:
    with pytest.raises(InvalidName):
        names.check_broker_name(name)


@pytest.mark.parametrize(
    ("plain", "full"),
    [
        ("T", "ns%T"),
        ("%RETRY%g", "%RETRY%ns%g"),
        ("%DLQ%g", "%DLQ%ns%g"),
        ("TBW102", "TBW102"),
        ("ns%T", "ns%T"),
    ],
)
def test_a_namespace_is_put_before_the_plain_name(plain: str, full: str) -> None:
    assert names.with_namespace("ns", plain) == full
    assert names.with_namespace("", plain) == plain


@pytest.mark.parametrize(("full", "plain"), [("ns%T", "T"), ("%RETRY%ns%g", "%RETRY%g"), ("other%T", "other%T")])
def test_a_namespace_is_taken_off_again(full: str, plain: str) -> None:
    assert names.without_namespace("ns", full) == plain
    assert names.without_namespace("", full) == full


@pytest.mark.parametrize("namespace", ["", "shop", "MQ_INST-1|a"])
def test_a_namespace_is_part_of_a_name(namespace: str) -> None:
    assert names.check_namespace(namespace) == namespace


@pytest.mark.parametrize("namespace", ["a%b", "a.b", " ", "ä"])
def test_what_cannot_be_part_of_a_name_is_no_namespace(namespace: str) -> None:
    with pytest.raises(InvalidName, match="use only letters"):
        names.check_namespace(namespace)
