from sparrowmq.cli.mqadmin.message_subcommands import PrintedMessage
from sparrowmq.protocol.messages.message import StoredMessage

STORED = StoredMessage(
    *(
        "T",
        1,
        2,
        300,
        99,
        7,
        0,
        0,
        1_700_000_000_000,
        "1.2.3.4:5",
        1_700_000_000_001,
        "127.0.0.1:10911",
        0,
        0,
    ),
    b"hi",
    {"KEYS": "k", "UNIQ_KEY": "AB"},
)


def test_a_message_is_described_as_java_does() -> None:
    message = PrintedMessage(STORED, "b", {"MIN_OFFSET": "0", **STORED.properties})
    assert str(message) == (
        "MessageExt [brokerName=b, queueId=1, storeSize=99, queueOffset=2, sysFlag=0, bornTimestamp=1700000000000, "
        "bornHost=/1.2.3.4:5, storeTimestamp=1700000000001, storeHost=/127.0.0.1:10911, "
        "msgId=7F00000100002A9F000000000000012C, commitLogOffset=300, bodyCRC=7, reconsumeTimes=0, "
        "preparedTransactionOffset=0, toString()=Message{topic='T', flag=0, properties={MIN_OFFSET=0, KEYS=k, "
        "UNIQ_KEY=AB}, body=[104, 105], transactionId='null'}]"
    )


def test_a_queue_of_a_broker_that_is_not_there_is_told(admin, topic):
    said = admin(f"printMsgByQueue -t {topic} -a broker-z -i 0")
    assert said.code == 1 and "MQClientException: The broker[broker-z] not exist" in said.err
    said = admin("printMsg -t Absent")
    assert said.err.count("Caused by: ") == 2 and "Can not find Message Queue for this topic, Absent" in said.err
