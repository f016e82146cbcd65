"""The keys of Apache's broker.conf that have no effect here, each with the reason, and the keys that are refused.

An operator's file should load unchanged, and the broker reports the keys without effect. Some keys protect data or
access: ignoring them would be unsafe, so the broker refuses to start with them.
"""

from __future__ import annotations

from typing import Final

_BY_REASON = {
    "one event loop serves all connections; there are no threads to size": """
        sendMessageThreadPoolNums pullMessageThreadPoolNums queryMessageThreadPoolNums adminBrokerThreadPoolNums
        processReplyMessageThreadPoolNums clientManageThreadPoolNums consumerManageThreadPoolNums
        heartbeatThreadPoolNums endTransactionThreadPoolNums sendThreadPoolQueueCapacity pullThreadPoolQueueCapacity
        queryThreadPoolQueueCapacity putThreadPoolQueueCapacity serverWorkerThreads serverSelectorThreads
        serverCallbackExecutorThreads useReentrantLockWhenPutMessage""",
    "a send is stored the moment it is read; it never waits in a queue": """
        waitTimeMillsInSendQueue waitTimeMillsInPullQueue waitTimeMillsInHeartbeatQueue
        waitTimeMillsInTransactionQueue brokerFastFailureEnable osPageCacheBusyTimeOutMills""",
    "messages go to the operating system at once, and to disk in one sync for all that wait": """
        flushCommitLogLeastPages flushCommitLogThoroughInterval flushConsumeQueueLeastPages
        flushConsumeQueueThoroughInterval flushIntervalConsumeQueue commitIntervalCommitLog commitCommitLogLeastPages
        commitCommitLogThoroughInterval flushCommitLogTimed transientStorePoolEnable
        transientStorePoolSize fastFailIfNoBufferInStorePool""",
    "log files are allocated ahead, and the page cache decides what stays in memory": """
        warmMapedFileEnable warmMappedFileEnable flushLeastPagesWhenWarmMapedFile
        maxTransferCountOnMessageInDisk maxTransferBytesOnMessageInDisk transferMsgByHeap""",
    "an expired file is deleted at once; nothing keeps it open": """
        destroyMapedFileIntervalForcibly redeleteHangedFileInterval deleteCommitLogFilesInterval
        deleteConsumeQueueFilesInterval cleanFileForciblyEnable cleanResourceInterval""",
    "a SYNC_MASTER waits for one slave, as in 4.9, and a slave stays one": """
        inSyncReplicas minInSyncReplicas totalReplicas allAckInSyncStateSet enableSlaveActingMaster
        offsetCheckInSlave""",
    "an SQL92 filter looks at each message itself; there is no bit map ahead of it, and it is kept nowhere": """
        enableCalcFilterBitMap enableConsumeQueueExt filterDataCleanTimeSpan bitMapLengthConsumeQueueExt
        expectConsumerNumUseFilter maxErrorRateOfBloomFilter""",
    "messages that come again were wanted once, and are not filtered again": "filterSupportRetry",
    "messages for a time are delivered to the millisecond, and kept as long as they wait": """
        timerPrecisionMs timerEnableCheckMetrics timerRollWindowSlot timerCongestNumEachSlot timerFlushIntervalMs
        timerGetMessageThreadNum timerPutMessageThreadNum timerStopEnqueue timerStopDequeue timerSkipUnknownError
        timerWarmEnable timerEnableDisruptor timerInterceptDelayLevel mappedFileSizeTimerLog""",
    "metrics are read from a port (metricsExporterType=PROM), and not pushed": """
        metricsGrpcExporterTarget metricsGrpcExporterHeader""",
    "what name servers know is sent when it changed; else they are asked whether they still know it": """
        forceRegister compressedRegister enableSingleTopicRegister""",
    "name servers are given by namesrvAddr": "fetchNamesrvAddrByAddressServer rmqAddressServerDomain",
    "there is no Netty here": """
        serverPooledByteBufAllocatorEnable useEpollNativeSelector serverSocketSndBufSize serverSocketRcvBufSize
        clientCloseSocketIfTimeout serverChannelMaxIdleTimeSeconds""",
    "there is one kind of store, of files": """
        storeType enableRocksDBStore enableBuildConsumeQueueConcurrently messageStorePlugIn""",
    "settings are read from the file given with -c, and from nowhere else": "brokerConfigPath",
    "every broker is in the region DefaultRegion": "regionId traceOn",
    "there are no filter servers; filters run in the broker": "filterServerNums",
    "each record is checked at the start": "checkCRCOnRecover",
    "members learn at once that others came or left": "notifyConsumerIdsChangedEnable",
    "a slow consumer is sent to a slave, and not refused": "disableConsumeIfConsumerReadSlowly",
    "statistics of delay levels and of each queue's pulls are always kept": """
        enableDetailStat enableScheduleMessageStats""",
    "how far behind a group reads is measured as its lag": "diskFallRecorded",
    "a broker takes messages as soon as it has started": "startAcceptSendRequestTimeStamp",
    "a message is in one queue": "enableLmq enableMultiDispatch enableLmqStats",
    "the log is in one folder, read and written with files and not with a map": """
        readOnlyCommitLogStorePaths writeWithoutMmap coldDataFlowControlEnable coldDataScanEnable
        recoverConcurrently""",
    "files are deleted by fileReservedTime and diskMaxUsedSpaceRatio": """
        diskSpaceWarningLevelRatio diskSpaceCleanForciblyRatio enableCompaction""",
    "another broker is reached within 3 s or not at all": "connectTimeoutMillis",
    "a broker acts for no other one": "enableRemoteEscape",
    "only what is committed can be read, and pulls are served": "readUnCommitted rejectPullConsumerEnable",
    "there is one log of the program for all": "isolateLogEnable",
    "users and policies are state of the broker, in memory and in its log (authenticationEnabled)": """
        authenticationProvider authenticationMetadataProvider authenticationStrategy authorizationProvider
        authorizationMetadataProvider authorizationStrategy authConfigPath userCacheMaxNum userCacheExpiredSecond
        userCacheRefreshSecond aclCacheMaxNum aclCacheExpiredSecond aclCacheRefreshSecond
        statefulAuthenticationCacheMaxNum statefulAuthenticationCacheExpiredSecond
        statefulAuthorizationCacheMaxNum statefulAuthorizationCacheExpiredSecond""",
    "a log is copied by replication only": "duplicationEnable",
    "a query answers as many messages as Apache's broker does by default": "maxMsgsNumBatch defaultQueryMaxNum",
    "delayed messages are delivered in turns, one after the other": "enableScheduleAsyncDeliver",
}
_WITHOUT_FAILOVER = (
    "set enableControllerMode=true and etcdEndpoints instead (docs/operate/failover.md), and leave it out"
)

# What Apache's broker would have to be set to, to do as this one always does: `getBrokerConfig` shows these, too.
FIXED: Final = {
    "brokerFastFailureEnable": "false",
    "checkCRCOnRecover": "true",
    "cleanFileForciblyEnable": "true",
    "cleanResourceInterval": "10000",
    "coldDataFlowControlEnable": "false",
    "coldDataScanEnable": "false",
    "compressedRegister": "false",
    "connectTimeoutMillis": "3000",
    "defaultQueryMaxNum": "32",
    "deleteCommitLogFilesInterval": "0",
    "deleteConsumeQueueFilesInterval": "0",
    "destroyMapedFileIntervalForcibly": "0",
    "disableConsumeIfConsumerReadSlowly": "false",
    "diskFallRecorded": "false",
    "duplicationEnable": "false",
    "enableCalcFilterBitMap": "false",
    "enableCompaction": "false",
    "enableConsumeQueueExt": "false",
    "enableDLegerCommitLog": "false",
    "enableDetailStat": "true",
    "enableLmq": "false",
    "enableLmqStats": "false",
    "enableMultiDispatch": "false",
    "enableRemoteEscape": "false",
    "enableScheduleAsyncDeliver": "false",
    "enableScheduleMessageStats": "true",
    "enableSlaveActingMaster": "false",
    "fastFailIfNoBufferInStorePool": "false",
    "fetchNamesrvAddrByAddressServer": "false",
    "filterServerNums": "0",
    "filterSupportRetry": "false",
    "flushCommitLogLeastPages": "0",
    "flushCommitLogTimed": "true",
    "forceRegister": "false",
    "isolateLogEnable": "false",
    "maxMsgsNumBatch": "64",
    "messageStorePlugIn": "",
    "notifyConsumerIdsChangedEnable": "true",
    "offsetCheckInSlave": "false",
    "readOnlyCommitLogStorePaths": "",
    "readUnCommitted": "false",
    "recoverConcurrently": "false",
    "regionId": "DefaultRegion",
    "rejectPullConsumerEnable": "false",
    "serverChannelMaxIdleTimeSeconds": "120",
    "serverSocketRcvBufSize": "0",
    "serverSocketSndBufSize": "0",
    "startAcceptSendRequestTimeStamp": "0",
    "storeType": "default",
    "timerStopDequeue": "false",
    "timerStopEnqueue": "false",
    "traceOn": "true",
    "transferMsgByHeap": "true",
    "transientStorePoolEnable": "false",
    "warmMapedFileEnable": "false",
    "writeWithoutMmap": "true",
}

# Java takes any number for these, and clamps four of them itself: diskMaxUsedSpaceRatio (10 to 95),
# registerNameServerPeriod (10 to 60 s) and both names of mappedFileSizeConsumeQueue (up to a multiple of 20). Ports,
# brokerId and brokerPermission are not here, as no other number means the same. Nor are mappedFileSizeCommitLog, since
# files of another size may exist, and fileReservedTime, since a small number deletes messages.
_NUMBERS: Final = """
    accessMessageInMemoryMaxRatio defaultTopicQueueNums diskMaxUsedSpaceRatio flushConsumerOffsetInterval
    flushDelayOffsetInterval flushIntervalCommitLog haHousekeepingInterval haMaxTimeSlaveNotCatchup
    haSendHeartbeatInterval haSlaveFallbehindMax haTransferBatchSize mapedFileSizeConsumeQueue
    mappedFileSizeConsumeQueue maxHashSlotNum maxIndexNum maxMessageSize maxTransferBytesOnMessageInMemory
    maxTransferCountOnMessageInMemory registerBrokerTimeoutMills registerNameServerPeriod shortPollingTimeMills
    slaveTimeout syncFlushTimeout timerMaxDelaySec transactionCheckInterval transactionCheckMax transactionTimeOut
"""
CLAMPED: Final = frozenset(_NUMBERS.split())
ACCEPTED: Final = {key: reason for reason, keys in _BY_REASON.items() for key in keys.split()}
REFUSED: Final = {
    "enableDLegerCommitLog": _WITHOUT_FAILOVER,
}
