"""Settings of groups of 5.x: the pauses that Java 5.4.0 computes."""

import pytest

from sparrowmq.errors import ConfigError
from sparrowmq.protocol.requests.group_settings import (
    CLASSIC,
    LONGEST_MS,
    GroupRetryPolicy,
    policy_of,
    text_of,
)

EXPONENTIAL = b'{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":1000,"max":60000,"multiplier":3}}'
CUSTOMIZED = b'{"customizedRetryPolicy":{"next":[1,2,30,40]},"type":"CUSTOMIZED"}'


@pytest.mark.parametrize(
    ("policy", "pauses_ms"),
    [
        (b"{}", {-1: 10_000, 0: 10_000, 1: 30_000, 15: 7_200_000, 99: 7_200_000}),
        (b'{"type":"CUSTOMIZED"}', {0: 10_000}),
        (b'{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[]}}', {0: 10_000}),
        (b'{"type":"EXPONENTIAL"}', {0: 10_000, 1: 30_000}),
        (b'{"type":"NONSENSE"}', {0: 10_000}),
        (CUSTOMIZED, {-1: 30, 0: 30, 1: 40, 2: 40, 1000: 40}),
        (b'{"customizedRetryPolicy":{"next":[7]}}', {0: 7, 5: 7}),
        (EXPONENTIAL, {-1: 1000, 0: 1000, 1: 3000, 2: 9000, 3: 27_000, 4: 60_000, 1_000_000: 60_000}),
        (b'{"type":"EXPONENTIAL","exponentialRetryPolicy":{}}', {0: 5000, 1: 10_000, 31: 7_200_000}),
    ],
)
def test_a_policy_gives_the_pause_before_each_try(policy, pauses_ms):
    found = GroupRetryPolicy.decode(policy)
    assert {tries: found.pause_ms(tries) for tries in pauses_ms} == pauses_ms


def test_only_a_policy_with_pauses_of_its_own_counts_as_one():
    assert not CLASSIC.is_own
    assert not GroupRetryPolicy.decode(b"{}").is_own
    assert not GroupRetryPolicy.decode(b'{"type":"EXPONENTIAL"}').is_own
    assert not GroupRetryPolicy.decode(b'{"type":"EXPONENTIAL","customizedRetryPolicy":{"next":[1]}}').is_own
    assert not GroupRetryPolicy.decode(b'{"type":"CUSTOMIZED","exponentialRetryPolicy":{}}').is_own
    assert GroupRetryPolicy.decode(EXPONENTIAL).is_own
    assert GroupRetryPolicy.decode(CUSTOMIZED).is_own


@pytest.mark.parametrize("policy", [b"{}", CUSTOMIZED, EXPONENTIAL])
def test_a_policy_is_kept_as_it_came(policy):
    found = GroupRetryPolicy.decode(policy)
    found.check()
    assert GroupRetryPolicy.decode(found.encode()) == found


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (b'{"type":"LINEAR"}', "type 'LINEAR'; it must be CUSTOMIZED or EXPONENTIAL"),
        (b'{"exponentialRetryPolicy":{"initial":-1}}', "initial -1"),
        (b'{"exponentialRetryPolicy":{"max":3456000001}}', f"max {LONGEST_MS + 1}"),
        (b'{"exponentialRetryPolicy":{"multiplier":0}}', "multiplier 0; it must be 1 to 1000"),
        (b'{"exponentialRetryPolicy":{"multiplier":1001}}', "multiplier 1001"),
        (b'{"customizedRetryPolicy":{"next":[1,-2]}}', "next -2"),
        (b'{"customizedRetryPolicy":{"next":[' + b"1," * 1000 + b"1]}}", "1001 pauses"),
    ],
)
def test_a_pause_that_cannot_be_is_refused(policy, words):
    with pytest.raises(ConfigError) as caught:
        GroupRetryPolicy.decode(policy).check()
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "pauses_ms"),
    [
        ("10s", [10_000, 10_000]),
        ("1s 2m 3h", [1000, 120_000, 10_800_000, 10_800_000]),
        ("5s..18s", [5000, 10_000, 18_000, 18_000]),
        ("levels", [10_000, 30_000, 60_000]),
    ],
)
def test_a_text_gives_the_pauses_in_their_order(text, pauses_ms):
    policy = policy_of(text)
    assert policy is not None
    assert [policy.pause_ms(tries) for tries in range(len(pauses_ms))] == pauses_ms
    assert text_of(policy) == text


def test_policies_of_other_tools_have_a_text():
    assert text_of(None) == text_of(CLASSIC) == "levels"
    assert text_of(GroupRetryPolicy.decode(EXPONENTIAL)) == "1s..1m x3"
    assert text_of(GroupRetryPolicy.decode(CUSTOMIZED)) == "30ms 40ms"
    assert text_of(GroupRetryPolicy.decode(b'{"customizedRetryPolicy":{"next":[1000,2000]}}')) == "2s"
    assert policy_of(None) is None


@pytest.mark.parametrize(
    "text",
    ["", " ", "soon", "10s soon", "100ms", "..", "5s..", "..5s", "5s..1h..2h", "41d", "-5s", ["1s"], 5, ...],
)
def test_a_text_that_is_no_policy_is_refused(text):
    with pytest.raises(ConfigError):
        policy_of(text)
