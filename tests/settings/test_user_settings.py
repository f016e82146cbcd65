"""The settings of users and policies."""

import pytest

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.errors import ConfigError
from sparrowmq.settings.settings import build
from sparrowmq.settings.user_settings import FIRST_USER, INNER_CREDENTIALS, named_secret

GIVEN = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"admin","password":"s3cr3t-one"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"s3cr3t-two"}',
    "authenticationWhitelist": "105, 34",
    "authorizationWhitelist": "34;105;28",
}


def test_the_keys_of_java_are_read_and_no_secret_is_shown():
    settings, _ = build(BrokerSettings, GIVEN, "broker.conf")
    assert settings.authentication and settings.authorization and settings.checks_access
    assert settings.authentication_whitelist == {34, 105}
    assert settings.authorization_whitelist == {28, 34, 105}
    assert named_secret(settings.first_user or "", FIRST_USER) == ("admin", "s3cr3t-one")
    assert named_secret(settings.inner_credentials or "", INNER_CREDENTIALS) == ("inner", "s3cr3t-two")
    assert "s3cr3t" not in repr(settings) + repr(settings.as_shown()) + repr(settings.as_properties())


@pytest.mark.parametrize("text", ["admin:s3cr3t", "{}", '{"username":"admin"}', '["s3cr3t"]', '{"username":1}'])
def test_a_broken_user_is_refused_without_its_secret(text):
    with pytest.raises(ConfigError, match=r'initAuthenticationUser must be a JSON object: {"username"') as caught:
        named_secret(text, FIRST_USER)
    assert "s3cr3t" not in str(caught.value)


def test_other_codes_than_numbers_are_refused():
    with pytest.raises(ConfigError, match="authenticationWhitelist"):
        build(BrokerSettings, {"authenticationWhitelist": "heartbeat"}, "broker.conf")
