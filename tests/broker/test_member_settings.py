"""Settings of a member that do not fit together are refused before anything starts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparrowmq.broker.broker_settings import BrokerRole, BrokerSettings
from sparrowmq.broker.member import check_member_settings
from sparrowmq.errors import ConfigError
from sparrowmq.remoting.tls.tls_settings import TlsMode

MEMBER = BrokerSettings(
    broker_id=1,
    role=BrokerRole.SYNC_MASTER,
    port=10911,
    ha_port=10912,
    failover=True,
    etcd=("127.0.0.1:2379",),
)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"etcd": ()}, "enableControllerMode needs etcdEndpoints"),
        ({"broker_id": 0}, "brokerId = 0 is the master"),
        ({"role": BrokerRole.SLAVE}, "etcd decides which member is a slave"),
        ({"ha_master": "a:1"}, "leave haMasterAddress out"),
        ({"port": 0}, "a listenPort and a haListenPort that stay the same"),
        ({"ha_port": 0}, "a listenPort and a haListenPort that stay the same"),
        (
            {"tls_mode": TlsMode.ENFORCING, "etcd": ("10.0.0.1:2379", "127.0.0.1:2379")},
            "the connection to etcd is not encrypted: set etcd.tls.enable=true",
        ),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(changes: dict[str, Any], words: str) -> None:
    check_member_settings(MEMBER)
    with pytest.raises(ConfigError, match=words):
        check_member_settings(replace(MEMBER, **changes))
