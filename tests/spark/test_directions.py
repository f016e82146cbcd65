"""sparrowmq.spark.options: options that read, and options that send."""

import pytest

from sparrowmq.errors import ConfigError
from sparrowmq.spark.options import check_reading, check_sending


@pytest.mark.parametrize("name", ["tags", "startingTimestamp", "maxOffsetsPerTrigger", "FILTER.SQL"])
def test_what_chooses_messages_is_no_option_of_sending(name):
    check_reading({name: "1"})
    with pytest.raises(ConfigError, match=f"option {name} says what is read"):
        check_sending({"retries": "1", name: "1"})


@pytest.mark.parametrize("name", ["onError", "sendtimeoutms", "deliveryGuarantee"])
def test_what_says_how_to_send_is_no_option_of_reading(name):
    check_sending({name: "1"})
    with pytest.raises(ConfigError, match=f"option {name} says how messages are sent"):
        check_reading({"retries": "1", name: "1"})


@pytest.mark.parametrize("name", ["nameServer", "accessKey", "tls.enable", "dlqTopic", "brokerName", "unknown"])
def test_what_both_have_and_what_nobody_knows_is_for_others_to_judge(name):
    check_reading({name: "1"})
    check_sending({name: "1"})
