"""sparrowmq.spark.directions: options that read, and options that send."""

import pytest

from sparrowmq.errors import ConfigError
from sparrowmq.spark.directions import demand_reading, demand_sending


@pytest.mark.parametrize("name", ["tags", "startingTimestamp", "maxOffsetsPerTrigger", "FILTER.SQL"])
def test_what_chooses_messages_is_no_option_of_sending(name):
    demand_reading({name: "1"})
    with pytest.raises(ConfigError, match=f"option {name} says what is read"):
        demand_sending({"retries": "1", name: "1"})


@pytest.mark.parametrize("name", ["onError", "sendtimeoutms", "deliveryGuarantee"])
def test_what_says_how_to_send_is_no_option_of_reading(name):
    demand_sending({name: "1"})
    with pytest.raises(ConfigError, match=f"option {name} says how messages are sent"):
        demand_reading({"retries": "1", name: "1"})


@pytest.mark.parametrize("name", ["nameServer", "accessKey", "tls.enable", "dlqTopic", "brokerName", "unknown"])
def test_what_both_have_and_what_nobody_knows_is_for_others_to_judge(name):
    demand_reading({name: "1"})
    demand_sending({name: "1"})
