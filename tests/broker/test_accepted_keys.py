from sparrowmq.broker.broker_settings import _BY_REASON, ACCEPTED, FIXED, REFUSED, BrokerSettings
from sparrowmq.broker.handlers import query_handler
from sparrowmq.remoting.pool import CONNECT_S
from sparrowmq.remoting.server import ServerLimits
from sparrowmq.settings.settings import keyed_fields
from sparrowmq.store import upkeep


def test_no_key_is_in_two_classes():
    honoured = [key for each in keyed_fields(BrokerSettings) for key in each.metadata["keys"]]
    accepted = [key for keys in _BY_REASON.values() for key in keys.split()]
    everything = [*honoured, *accepted, *REFUSED]
    assert len(everything) == len(set(everything)) and set(accepted) == ACCEPTED.keys()


def test_the_keys_that_people_set_most_are_all_known():
    top = """brokerClusterName brokerName brokerId brokerRole flushDiskType deleteWhen fileReservedTime listenPort
        namesrvAddr brokerIP1 storePathRootDir storePathCommitLog autoCreateTopicEnable autoCreateSubscriptionGroup
        defaultTopicQueueNums mappedFileSizeCommitLog mapedFileSizeCommitLog mappedFileSizeConsumeQueue
        mapedFileSizeConsumeQueue diskMaxUsedSpaceRatio maxMessageSize sendMessageThreadPoolNums
        pullMessageThreadPoolNums flushCommitLogThoroughInterval flushConsumeQueueLeastPages
        destroyMapedFileIntervalForcibly redeleteHangedFileInterval enablePropertyFilter traceTopicEnable
        msgTraceTopicName aclEnable authenticationEnabled authorizationEnabled messageDelayLevel timerWheelEnable
        timerMaxDelaySec transactionTimeOut transactionCheckMax transactionCheckInterval waitTimeMillsInSendQueue
        slaveReadEnable haListenPort brokerIP2 haMasterAddress enableControllerMode enableDLegerCommitLog
        inSyncReplicas minInSyncReplicas totalReplicas transientStorePoolEnable warmMapedFileEnable
        metricsExporterType metricsPromExporterPort metricsLabel metricsGrpcExporterTarget brokerPermission
        rejectTransactionMessage osPageCacheBusyTimeOutMills brokerFastFailureEnable"""
    honoured = {key for each in keyed_fields(BrokerSettings) for key in each.metadata["keys"]}
    assert not set(top.split()) - honoured - ACCEPTED.keys() - REFUSED.keys()


def test_what_is_shown_as_fixed_has_a_reason_and_is_no_setting():
    """A tool that changes such a key gets the reason."""
    honoured = {key for each in keyed_fields(BrokerSettings) for key in each.metadata["keys"]}
    assert not FIXED.keys() & honoured
    assert not FIXED.keys() - ACCEPTED.keys() - REFUSED.keys()


def test_fixed_values_are_those_of_the_code():
    assert FIXED["serverChannelMaxIdleTimeSeconds"] == f"{ServerLimits().idle_s:.0f}"
    assert FIXED["connectTimeoutMillis"] == f"{1000 * CONNECT_S:.0f}"
    assert FIXED["cleanResourceInterval"] == f"{1000 * upkeep._RETENTION_PERIOD_S:.0f}"
    queries = (query_handler.MAX_MESSAGES, query_handler.MAX_MESSAGES_OF_UNIQUE_KEY)
    assert (FIXED["maxMsgsNumBatch"], FIXED["defaultQueryMaxNum"]) == tuple(map(str, queries))
