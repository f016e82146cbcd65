"""The table of commands: place, the Java class that errors name, meaning, options.

    name module:function JavaClass
        : meaning
        *t topic : meaning          required
        |b brokerAddr : ...         exactly one of those with a bar
         r readQueueNums : ...      optional
        -l list : ...               optional, without a value

Spaces after a name are Java's. A command's module is imported when it is called, so the tool starts fast.
Source: MQAdminStartup and the classes named, Java 4.9.8; attributes, order and retry policies, Java 5.4.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sparrowmq.cli.mqadmin.java_options import HELP, NAMESRV, Option


@dataclass(frozen=True, slots=True)
class Command:
    name: str
    place: str  # its module, and its function there
    java: str  # the class that implements it in Java
    meaning: str
    own: tuple[Option, ...]

    @property
    def options(self) -> tuple[Option, ...]:
        own_letters = {option.letter for option in self.own}
        return (*(option for option in (HELP, NAMESRV) if option.letter not in own_letters), *self.own)


_TABLE: Final = """
updateTopic topic_subcommands:update_topic UpdateTopicSubCommand
    : Update or create topic
    |b brokerAddr : create topic to which broker
    |c clusterName : create topic to which cluster
    *t topic : topic name
     r readQueueNums : set read queue nums
     w writeQueueNums : set write queue nums
     o order : set topic's order(true|false)
     u unit : is unit topic (true|false)
     s hasUnitSub : has unit sub (true|false)
     p perm : set topic's permission(2|4|6), intro[2:W 4:R; 6:RW]
     a attributes : attribute(+a=b,+c=d,-e)
deleteTopic topic_subcommands:delete_topic DeleteTopicSubCommand
    : Delete topic from broker and NameServer.
    *t topic : topic name
    *c clusterName : delete topic from which cluster
updateSubGroup group_subcommands:update_sub_group UpdateSubGroupSubCommand
    : Update or create subscription group
     b brokerAddr : create subscription group to which broker
     c clusterName : create subscription group to which cluster
    *g groupName : consumer group name
     s consumeEnable : consume enable
     m consumeFromMinEnable : from min offset
     d consumeBroadcastEnable : broadcast
     q retryQueueNums : retry queue nums
     r retryMaxTimes : retry max times
     i brokerId : consumer from which broker id
     w whichBrokerWhenConsumeSlowly : which broker id when consume slowly
     a notifyConsumerIdsChanged : notify consumerId changed
     o consumeMessageOrderly : consume message orderly
     p groupRetryPolicy : the json string of retry policy
deleteSubGroup group_subcommands:delete_sub_group DeleteSubscriptionGroupCommand
    : Delete subscription group from broker.
     b brokerAddr : delete subscription group from which broker
     c clusterName : delete subscription group from which cluster
    *g groupName : subscription group name
     r removeOffset : remove offset
updateBrokerConfig server_subcommands:update_broker_config UpdateBrokerConfigSubCommand
    : Update broker's config
     b brokerAddr : update which broker
     c clusterName : update which cluster
    *k key : config key
    *v value : config value
updateTopicPerm topic_subcommands:update_topic_perm UpdateTopicPermSubCommand
    : Update topic perm
     b brokerAddr : create topic to which broker
     c clusterName : create topic to which cluster
    *t topic : topic name
    *p perm : set topic's permission(2|4|6), intro[2:W; 4:R; 6:RW]
topicRoute topic_subcommands:topic_route TopicRouteSubCommand
    : Examine topic route info
    *t topic : topic name
    -l list : Use list format to print data
topicStatus topic_subcommands:topic_status TopicStatusSubCommand
    : Examine topic Status info
    *t topic : topic name
topicClusterList topic_subcommands:topic_cluster_list TopicClusterSubCommand
    : get cluster info for topic
    *t topic : topic name
brokerStatus server_subcommands:broker_status BrokerStatusSubCommand
    : Fetch broker runtime status data
     b brokerAddr : Broker address
     c clusterName : which cluster
queryMsgById message_subcommands:query_msg_by_id QueryMsgByIdSubCommand
    : Query Message by Id
    *i msgId : Message Id
     g consumerGroup : consumer group name
     d clientId : The consumer's client id
     s sendMessage : resend message
     u unitName : unit name
queryMsgByKey message_subcommands:query_msg_by_key QueryMsgByKeySubCommand
    : Query Message by Key
    *t topic : topic name
    *k msgKey : Message Key
queryMsgByUniqueKey message_subcommands:query_msg_by_unique_key QueryMsgByUniqueKeySubCommand
    : Query Message by Unique key
    *i msgId : Message Id
     g consumerGroup : consumer group name
     d clientId : The consumer's client id
    *t topic : The topic of msg
    -a showAll : Print all message, the limit is 32
queryMsgByOffset message_subcommands:query_msg_by_offset QueryMsgByOffsetSubCommand
    : Query Message by offset
    *t topic : topic name
    *b brokerName : Broker Name
    *i queueId : Queue Id
    *o offset : Queue Offset
queryMsgTraceById message_subcommands:query_msg_trace_by_id QueryMsgTraceByIdSubCommand
    : query a message trace
    *i msgId : Message Id
     t traceTopic : The name value of message trace topic
printMsg message_subcommands:print_msg PrintMessageSubCommand
    : Print Message Detail
    *t topic : topic name
     c charsetName  : CharsetName(eg: UTF-8,GBK)
     s subExpression  : Subscribe Expression(eg: TagA || TagB)
     b beginTimestamp  : Begin timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]
     e endTimestamp  : End timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]
     d printBody  : print body
printMsgByQueue message_subcommands:print_msg_by_queue PrintMessageByQueueCommand
    : Print Message Detail
    *t topic : topic name
    *a brokerName  : broker name
    *i queueId  : queue id
     c charsetName  : CharsetName(eg: UTF-8,GBK)
     s subExpression  : Subscribe Expression(eg: TagA || TagB)
     b beginTimestamp  : Begin timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]
     e endTimestamp  : End timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]
     p print msg : print msg. eg: true | false(default)
     d printBody  : print body. eg: true | false(default)
     f calculate : calculate by tag. eg: true | false(default)
sendMsgStatus message_subcommands:send_msg_status SendMsgStatusCommand
    : send msg to broker.
    *b brokerName : Broker Name
     s messageSize : Message Size, Default: 128
     c count : send message count, Default: 50
brokerConsumeStats server_subcommands:broker_consume_stats BrokerConsumeStatsSubCommad
    : Fetch broker consume stats data
    *b brokerAddr : Broker address
     t timeoutMillis : request timeout Millis
     l level : threshold of print diff
     o order : order topic
producerConnection group_subcommands:producer_connection ProducerConnectionSubCommand
    : Query producer's socket connection and client version
    *g producerGroup : producer group name
    *t topic : topic name
consumerConnection group_subcommands:consumer_connection ConsumerConnectionSubCommand
    : Query consumer's socket connection, client version and subscription
    *g consumerGroup : consumer group name
     b brokerAddr : broker address
consumerProgress group_subcommands:consumer_progress ConsumerProgressSubCommand
    : Query consumers's progress, speed
     g groupName : consumer group name
     s showClientIP : Show Client IP per Queue
consumerStatus group_subcommands:consumer_status ConsumerStatusSubCommand
    : Query consumer's internal data structure
    *g consumerGroup : consumer group name
     i clientId : The consumer's client id
     b brokerAddr : broker address
    -s jstack : Run jstack command in the consumer progress
cloneGroupOffset offset_subcommands:clone_group_offset CloneGroupOffsetCommand
    : clone offset from other group.
    *s srcGroup : set source consumer group
    *d destGroup : set destination consumer group
    *t topic : set the topic
     o offline : the group or the topic is offline
producer server_subcommands:producer ProducerSubCommand
    : Query producer's instances, connection, status, etc.
    *b broker : broker address
clusterList server_subcommands:cluster_list ClusterListSubCommand
    : List all of clusters
    -m moreStats : Print more stats
     i interval : specify intervals numbers, it is in seconds
topicList topic_subcommands:topic_list TopicListSubCommand
    : Fetch all topic list from name server
    -c clusterModel : clusterModel
updateKvConfig server_subcommands:update_kv_config UpdateKvConfigCommand
    : Create or update KV config.
    *s namespace : set the namespace
    *k key : set the key name
    *v value : set the key value
deleteKvConfig server_subcommands:delete_kv_config DeleteKvConfigCommand
    : Delete KV config.
    *s namespace : set the namespace
    *k key : set the key name
wipeWritePerm server_subcommands:wipe_write_perm WipeWritePermSubCommand
    : Wipe write perm of broker in all name server you defined in the -n param
    *b brokerName : broker name
addWritePerm server_subcommands:add_write_perm AddWritePermSubCommand
    : Add write perm of broker in all name server you defined in the -n param
    *b brokerName : broker name
resetOffsetByTime offset_subcommands:reset_offset_by_time ResetOffsetByTimeCommand
    : Reset consumer offset by timestamp(without client restart).
    *g group : set the consumer group
    *t topic : set the topic
    *s timestamp : set the timestamp[now|currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]
     f force : set the force rollback by timestamp switch[true|false]
    -c cplus : reset c++ client offset
skipAccumulatedMessage offset_subcommands:skip_accumulated_message SkipAccumulationSubCommand
    : Skip all messages that are accumulated (not consumed) currently
    *g group : set the consumer group
    *t topic : set the topic
     f force : set the force rollback by timestamp switch[true|false]
updateOrderConf server_subcommands:update_order_conf UpdateOrderConfCommand
    : Create or update or delete order conf
    *t topic : topic name
    *m method : option type [eg. put|get|delete
     v orderConf : set order conf [eg. brokerName1:num;brokerName2:num]
cleanExpiredCQ server_subcommands:clean_expired_cq CleanExpiredCQSubCommand
    : Clean expired ConsumeQueue on broker.
     b brokerAddr : Broker address
     c cluster : clustername
deleteExpiredCommitLog server_subcommands:delete_expired_commit_log DeleteExpiredCommitLogSubCommand
    : Delete expired CommitLog files
     n namesrvAddr : Name server address
     b brokerAddr : Broker address
     c cluster : clustername
cleanUnusedTopic server_subcommands:clean_unused_topic CleanUnusedTopicCommand
    : Clean unused topic on broker.
     b brokerAddr : Broker address
     c cluster : cluster name
startMonitoring group_subcommands:start_monitoring StartMonitoringSubCommand
    : Start Monitoring
statsAll topic_subcommands:stats_all StatsAllSubCommand
    : Topic and Consumer tps stats
    -a activeTopic : print active topic only
     t topic : print select topic only
allocateMQ topic_subcommands:allocate_mq AllocateMQSubCommand
    : Allocate MQ
    *t topic : topic name
    *i ipList : ipList
checkMsgSendRT message_subcommands:check_msg_send_rt CheckMsgSendRTCommand
    : check message send response time
    *t topic : topic name
     a amount : message amount | default 100
     s size : message size | default 128 Byte
clusterRT message_subcommands:cluster_rt CLusterSendMsgRTCommand
    : List All clusters Message Send RT
     a amount : message amount | default 100
     s size : message size | default 128 Byte
     c cluster : cluster name | default display all cluster
     p print log : print as tlog | default false
     m machine room : machine room name | default noname
     i interval : print interval | default 10 seconds
getNamesrvConfig server_subcommands:get_namesrv_config GetNamesrvConfigCommand
    : Get configs of name server.
updateNamesrvConfig server_subcommands:update_namesrv_config UpdateNamesrvConfigCommand
    : Update configs of name server.
    *k key : config key
    *v value : config value
getBrokerConfig server_subcommands:get_broker_config GetBrokerConfigCommand
    : Get broker config by cluster or special broker!
     b brokerAddr : get which broker
     c clusterName : get which cluster
getConsumerConfig group_subcommands:get_consumer_config GetConsumerConfigSubCommand
    : Get consumer config by subscription group name!
    *g groupName : subscription group name
queryCq server_subcommands:query_cq QueryConsumeQueueCommand
    : Query cq command.
    *t topic : topic name
    *q queue : queue num, ie. 1
    *i index : start queue index.
     c count : how many.
     b broker : broker addr.
     g consumer : consumer group.
sendMessage message_subcommands:send_message SendMessageCommand
    : Send a message
    *t topic : Topic name
    *p body : UTF-8 string format of the message body
     k key : Message keys
     c tags : Message tags
     b broker : Send message to target broker
     i qid : Send message to target queue
     m msgTraceEnable : Message Trace Enable, Default: false
consumeMessage message_subcommands:consume_message ConsumeMessageCommand
    : Consume message
    *t topic : Topic name
     b brokerName : Broker name
     i queueId : Queue Id
     o offset : Queue offset
     g consumerGroup : Consumer group name
     s beginTimestamp  : Begin timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]
     e endTimestamp  : End timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]
     c MessageNumber : Number of message to be consumed
updateAclConfig access_subcommands:update_acl_config UpdateAccessConfigSubCommand
    : Update acl config yaml file in broker
    |b brokerAddr : update acl config file to which broker
    |c clusterName : update acl config file to which cluster
    *a accessKey : set accessKey in acl config file
    *s secretKey : set secretKey in acl config file
     w whiteRemoteAddress : set white ip Address for account in acl config file
     i defaultTopicPerm : set default topicPerm in acl config file
     u defaultGroupPerm : set default GroupPerm in acl config file
     t topicPerms : set topicPerms list,eg: topicA=DENY,topicD=SUB
     g groupPerms : set groupPerms list,eg: groupD=DENY,groupD=SUB
     m admin : set admin flag in acl config file
deleteAclConfig access_subcommands:delete_acl_config DeleteAccessConfigSubCommand
    : Delete Acl Config Account in broker
    |b brokerAddr : delete acl config account from which broker
    |c clusterName : delete acl config account from which cluster
    *a accessKey : set accessKey in acl config file for deleting which account
clusterAclConfigVersion access_subcommands:cluster_acl_config_version ClusterAclConfigVersionListSubCommand
    : List all of acl config version information in cluster
    |b brokerAddr : query acl config version for which broker
    |c clusterName : query acl config version for specified cluster
updateGlobalWhiteAddr access_subcommands:update_global_white_addr UpdateGlobalWhiteAddrSubCommand
    : Update global white address for acl Config File in broker
    |b brokerAddr : update global white address to which broker
    |c clusterName : update global white address to which cluster
    *g globalWhiteRemoteAddresses : set globalWhiteRemoteAddress list,eg: 10.10.103.*,192.168.0.*
     p aclFileFullPath : update global white address of specified acl file,eg: /xxx/plain_test.yml
exportMetadata export_subcommands:export_metadata ExportMetadataCommand
    : export metadata
     c clusterName : choose a cluster to export
     b brokerAddr : choose a broker to export
     f filePath : export metadata.json path | default /tmp/rocketmq/export
    -t topic : only export topic metadata
    -g subscriptionGroup : only export subscriptionGroup metadata
    -s specialTopic : need retryTopic and dlqTopic
exportConfigs export_subcommands:export_configs ExportConfigsCommand
    : export configs
    *c clusterName : choose a cluster to export
     f filePath : export configs.json path | default /tmp/rocketmq/export
exportMetrics export_subcommands:export_metrics ExportMetricsCommand
    : export metrics
    *c clusterName : choose a cluster to export
     f filePath : export metrics.json path | default /tmp/rocketmq/export
"""
# Only 5.3 and later have these.
_TABLE_OF_5: Final = """
setConsumeMode group_subcommands:set_consume_mode SetConsumeModeSubCommand
    : Set consume message mode. pull/pop etc.
     b brokerAddr : create subscription group to which broker
     c clusterName : create subscription group to which cluster
    *t topicName : topic name
    *g groupName : consumer group name
    *m mode : consume mode. PULL/POP
     q popShareQueueNum : num of queue which share in pop mode
haStatus server_subcommands:ha_status HAStatusSubCommand
    : Fetch ha runtime status data.
    |c clusterName : which cluster
    |b brokerAddr : which broker to fetch
     i interval : the interval(second) of get info
createUser access_subcommands:create_user CreateUserSubCommand
    : Create user to cluster.
    |b brokerAddr : create user to which broker
    |c clusterName : create user to which cluster
    *u username : the username of user to create.
    *p password : the password of user to create
     t userType : the userType of user to create
updateUser access_subcommands:update_user UpdateUserSubCommand
    : Update user to cluster.
    |b brokerAddr : update user to which broker
    |c clusterName : update user to which cluster
    *u username : the username of user to update.
     p password : the password of user to update
     t userType : the userType of user to update
     s userStatus : the userStatus of user to update
deleteUser access_subcommands:delete_user DeleteUserSubCommand
    : Delete user from cluster.
    |b brokerAddr : delete user from which broker
    |c clusterName : delete user from which cluster
    *u username : the username of user to delete.
getUser access_subcommands:get_user GetUserSubCommand
    : Get user from cluster.
    |b brokerAddr : get user for which broker
    |c clusterName : get user for specified cluster
    *u username : the username of user to get
listUser access_subcommands:list_user ListUserSubCommand
    : List user from cluster.
    |b brokerAddr : list user for which broker
    |c clusterName : list user for specified cluster
     f filter : the filter to list users
copyUser access_subcommands:copy_user CopyUsersSubCommand
    : Copy user to cluster.
    *f fromBroker : the source broker that the users copy from
    *t toBroker : the target broker that the users copy to
     u usernames : the username list of user to copy.
createAcl access_subcommands:create_acl CreateAclSubCommand
    : Create acl to cluster.
    |b brokerAddr : create acl to which broker
    |c clusterName : create acl to which cluster
    *s subject : the subject of acl to create.
    *r resources : the resources of acl to create
    *a actions : the actions of acl to create
    *d decision : the decision of acl to create
     i sourceIp : the sourceIps of acl to create
updateAcl access_subcommands:update_acl UpdateAclSubCommand
    : Update acl to cluster.
    |b brokerAddr : update acl to which broker
    |c clusterName : update acl to which cluster
    *s subject : the subject of acl to update.
    *r resources : the resources of acl to update
    *a actions : the actions of acl to update
    *d decision : the decision of acl to update
     i sourceIp : the sourceIps of acl to update
deleteAcl access_subcommands:delete_acl DeleteAclSubCommand
    : Delete acl from cluster.
    |b brokerAddr : delete acl from which broker
    |c clusterName : delete acl from which cluster
    *s subject : the subject of acl to delete.
     r resources : the resources of acl to delete
getAcl access_subcommands:get_acl GetAclSubCommand
    : Get acl from cluster.
    |b brokerAddr : get acl for which broker
    |c clusterName : get acl for specified cluster
    *s subject : the subject of acl to get
listAcl access_subcommands:list_acl ListAclSubCommand
    : List acl from cluster.
    |b brokerAddr : list acl for which broker.
    |c clusterName : list acl for specified cluster.
     s subject : the subject of acl to filter.
     r resource : the resource of acl to filter.
copyAcl access_subcommands:copy_acl CopyAclsSubCommand
    : Copy acl to cluster.
    *f fromBroker : the source broker that the acls copy from
    *t toBroker : the target broker that the acls copy to
     s subjects : the subject list of acl to copy.
"""

# Other names that are understood.
ALIASES: Final = {"deleteaccessconfig": "deleteAclConfig"}


def _rows(table: str) -> Iterator[Command]:
    blocks = table.replace("\n    ", "\r").split("\n")
    for block in filter(None, blocks):
        head, meaning, *options = block.split("\r")
        name, place, java = head.split()
        yield Command(name, place, java, meaning.removeprefix(": "), tuple(map(_option, options)))


def _option(line: str) -> Option:
    names, _, meaning = line.partition(" : ")
    kind, letter, name = names[0], names[1], names[3:]
    return Option(letter, name, meaning, kind != "-", kind == "*", "place" if kind == "|" else "")


COMMANDS_OF_4: Final[tuple[Command, ...]] = tuple(_rows(_TABLE))
COMMANDS: Final[tuple[Command, ...]] = (*COMMANDS_OF_4, *_rows(_TABLE_OF_5))
BY_NAME: Final[dict[str, Command]] = {command.name.lower(): command for command in COMMANDS}


def find(name: str) -> Command | None:
    """Return the command of a name; case does not matter."""
    return BY_NAME.get(ALIASES.get(name.lower(), name).lower())
