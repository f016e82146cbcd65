from sparrowmq.broker.accepted_keys import _BY_REASON, ACCEPTED, REFUSED
from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.settings.settings import keyed


def test_no_key_is_in_two_classes():
    honoured = [key for each in keyed(BrokerSettings) for key in each.metadata["keys"]]
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
    honoured = {key for each in keyed(BrokerSettings) for key in each.metadata["keys"]}
    assert not set(top.split()) - honoured - ACCEPTED.keys() - REFUSED.keys()
