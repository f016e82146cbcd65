import sparrowmq.sync
from sparrowmq.protocol.requests.group_settings import text_of


def test_a_group_is_created_shown_and_deleted(admin):
    text = (
        "SubscriptionGroupConfig [groupName=billing, consumeEnable=true, consumeFromMinEnable=false, "
        "consumeBroadcastEnable=true, retryQueueNums=2, retryMaxTimes=3, brokerId=0, whichBrokerWhenConsumeSlowly=1, "
        "notifyConsumerIdsChangedEnable=true]"
    )
    options = "-g billing -r 3 -q 2 -d true"
    assert admin.ok(f"updateSubGroup -b {{broker}} {options}") == (
        f"create subscription group to {admin.broker} success.\n{text}"
    )
    assert admin.ok(f"updateSubGroup -c DefaultCluster {options}").endswith(text)
    rows = admin.ok("getConsumerConfig -g billing").splitlines()
    assert rows[0] == "=============================DefaultCluster:broker-0============================="
    assert f"{'retryMaxTimes':<40}=  3" in rows
    assert admin.ok("deleteSubGroup -b {broker} -g billing").startswith(
        "delete subscription group [billing] from broker"
    )
    said = admin.ok("deleteSubGroup -c DefaultCluster -g billing").splitlines()
    assert said[-1] == "delete topic [%DLQ%billing] from NameServer success."
    assert admin.ok("getConsumerConfig -g billing") == ""


def test_order_and_retry_policy_are_set_and_stay(admin):
    policy = '{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000,1000,5000]}}'
    admin.ok("updateSubGroup -b {broker} -g billing -o true -p {policy}", policy=policy)
    admin.ok("updateSubGroup -c DefaultCluster -g billing -r 3")
    with sparrowmq.sync.admin(admin.cluster.namesrv) as found:
        (settings,) = found.group("billing").settings.values()
    assert (settings.consume_message_orderly, settings.retry_max_times) == (True, 3)
    assert text_of(settings.group_retry_policy) == "5s"
    refused = admin("updateSubGroup -b {broker} -g billing -p nonsense")
    assert refused.code == 1 and "JSON" in refused.err


def test_a_group_is_let_pop(admin):
    admin.ok("updateTopic -b {broker} -t Shared")
    admin.ok("updateSubGroup -b {broker} -g poppers")
    said = admin.ok("setConsumeMode -c DefaultCluster -t Shared -g poppers -m POP -q 2")
    assert said == (
        f"set consume mode to {admin.broker} success.\n"
        "topic[Shared] group[poppers] consume mode[POP] popShareQueueNum[2]"
    )
    assert admin.ok("setConsumeMode -b {broker} -t Shared -g poppers -m PULL").endswith("popShareQueueNum[0]")
    refused = admin("setConsumeMode -b {broker} -t Shared -g poppers -m PUSH")
    assert refused.code == 1 and "it is PULL or POP" in refused.err


def test_without_a_place_the_usage_is_shown(admin):
    assert admin.ok("updateSubGroup -g g").startswith("usage: mqadmin updateSubGroup")
    assert admin.ok("deleteSubGroup -g g").startswith("usage: mqadmin deleteSubGroup")


def test_a_cluster_whose_broker_refuses_is_told(admin):
    said = admin("updateSubGroup -c DefaultCluster -g a@b")
    assert said.code == 1 and "MQClientException" in said.err
