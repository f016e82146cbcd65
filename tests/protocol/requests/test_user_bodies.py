"""The bodies of users and policies, as Java writes them."""

from sparrowmq.protocol.requests.user_headers import (
    Policy,
    PolicyRule,
    UserEntry,
    UserPolicies,
    decode_policies,
    decode_users,
    encode_list,
)


def test_a_user_has_the_names_of_java_and_leaves_out_what_is_absent():
    assert UserEntry("alice", "secret", "Normal").encode() == (
        b'{"password":"secret","userType":"Normal","username":"alice"}'
    )
    assert UserEntry.decode(b'{"username":"alice","userStatus":"disable"}').user_status == "disable"


def test_policies_have_the_names_of_java():
    rule = PolicyRule("Topic:orders", ["Pub"], ["10.0.0.0/8"], "Allow")
    raw = UserPolicies("User:alice", [Policy("Custom", [rule])]).encode()
    assert raw == (
        b'{"policies":[{"entries":[{"actions":["Pub"],"decision":"Allow","resource":"Topic:orders",'
        b'"sourceIps":["10.0.0.0/8"]}],"policyType":"Custom"}],"subject":"User:alice"}'
    )
    assert UserPolicies.decode(raw).policies[0].entries == [rule]


def test_lists_are_arrays_and_an_empty_body_is_an_empty_list():
    users = [UserEntry("alice", "a"), UserEntry("bob")]
    assert decode_users(encode_list(users)) == users
    policies = [UserPolicies("User:alice", [])]
    assert decode_policies(encode_list(policies)) == policies
    assert decode_users(b"") == [] and decode_policies(b"") == []
