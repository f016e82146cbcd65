"""Apache's admin tool, 4.9.7, says the same about our broker and name server as about Apache's own.

One script of commands is played against both, each in its own JVM (java/Admin.java); then each command's words are
compared. What differs by nature is masked: addresses, ids, times, versions, sizes (our records end in a checksum)
and the wording of errors, of which the exception and its code count.
"""

from __future__ import annotations

import json
import re
import time
from typing import Final

import pytest

from tests.interop.apache import SMALL_HEAP, JavaProcess, mqadmin
from tests.interop.clients import HERE, Puppet
from tests.interop.kits import server_jars
from tests.interop.servers import APACHE, OURS, running

pytestmark = pytest.mark.slow

VERSION: Final = "4.9.7"
BOOT_LIMIT_S: Final = 30
SCRIPT: Final = [
    line
    for line in """
clusterList
clusterList -m
brokerStatus -b {broker}
brokerStatus -c DefaultCluster
updateTopic -b {broker} -t AdminTopic -r 2 -w 2
updateTopic -c DefaultCluster -t Ordered -r 4 -w 4 -o true
updateTopic -c DefaultCluster -t Doomed
updateTopic -c Nowhere -t Lost
updateTopic -b {broker} -t Bad$Name
updateTopicPerm -b {broker} -t Doomed -p 4
topicList -c
topicRoute -t AdminTopic
topicRoute -t AdminTopic -l
topicRoute -t Absent
topicStatus -t Ordered
topicStatus -t Absent
topicClusterList -t AdminTopic
updateSubGroup -c DefaultCluster -g admin-consumer -r 3
updateSubGroup -b {broker} -g admin-other
getConsumerConfig -g admin-consumer
statsAll -a
statsAll -t AdminTopic
queryCq -t AdminTopic -q 0 -i 0
brokerConsumeStats -b {broker}
producer -b {broker}
cleanExpiredCQ -b {broker}
cleanExpiredCQ -c DefaultCluster
cleanUnusedTopic
deleteExpiredCommitLog -c DefaultCluster
getBrokerConfig -c Nowhere
sendMessage -t AdminTopic -p hello -k key-1 -c TagA -b broker-a -i 0
sendMessage -t AdminTopic -p hello-2 -b broker-a -i 1
sendMessage -t AdminTopic -p hello-3 -k key-1 -c TagC -b broker-a -i 1
queryMsgByOffset -t AdminTopic -b broker-a -i 0 -o 0
queryMsgByOffset -t AdminTopic -b broker-a -i 0 -o 99
queryMsgById -i {offset_id}
queryMsgById -i {offset_id_of_nothing}
queryMsgByKey -t AdminTopic -k key-1
queryMsgByKey -t AdminTopic -k nothing
queryMsgByUniqueKey -t AdminTopic -i {unique_id}
consumeMessage -t AdminTopic -b broker-a -i 1 -o 1 -c 1
consumeMessage -t AdminTopic -b broker-a -i 0
consumeMessage -t AdminTopic -c 10
printMsg -t AdminTopic
printMsgByQueue -t AdminTopic -a broker-a -i 0 -p true
online
topicStatus -t AdminTopic
consumerConnection -g admin-consumer
consumerConnection -g nobody
producerConnection -g admin-producer -t AdminTopic
producerConnection -g nobody -t AdminTopic
consumerProgress
consumerProgress -g admin-consumer
consumerProgress -g admin-consumer -s true
consumerProgress -g nobody
consumerStatus -g admin-consumer
brokerConsumeStats -b {broker}
brokerConsumeStats -b {broker} -l 1 -o true
producer -b {broker}
queryCq -t AdminTopic -q 1 -i 0 -c 2
queryCq -t AdminTopic -q 1 -i 0 -c 2 -b {broker} -g admin-consumer
queryCq -t AdminTopic -q 9 -i 0
statsAll -t AdminTopic
exportMetrics -c DefaultCluster -f {folder}
exportConfigs -c DefaultCluster -f {folder}
exportMetadata -c DefaultCluster -f {folder}
cloneGroupOffset -s admin-consumer -d admin-clone -t AdminTopic
resetOffsetByTime -g admin-consumer -t AdminTopic -s 0
resetOffsetByTime -g admin-consumer -t AdminTopic -s now
resetOffsetByTime -g admin-clone -t AdminTopic -s 0
resetOffsetByTime -g admin-clone -t Absent -s 0
skipAccumulatedMessage -g admin-clone -t AdminTopic
allocateMQ -t AdminTopic -i a,b
wipeWritePerm -b broker-a
addWritePerm -b broker-a
updateBrokerConfig -b {broker} -k maxMessageSize -v 4000000
updateBrokerConfig -c DefaultCluster -k brokerPermission -v 6
updateNamesrvConfig -k orderMessageEnable -v true
updateKvConfig -s NS -k name -v value
deleteKvConfig -s NS -k name
updateOrderConf -m put -t Ordered -v broker-a:4
updateOrderConf -m get -t Ordered
updateOrderConf -m delete -t Ordered
deleteSubGroup -b {broker} -g admin-other
deleteSubGroup -c DefaultCluster -g admin-consumer
deleteTopic -c DefaultCluster -t Doomed
deleteTopic -c DefaultCluster -t Absent
topicRoute -t Doomed
topicList
""".splitlines()
    if line
]

# Java prints these in the order of a hash map, which is nobody's promise.
UNORDERED: Final = (
    "topicList",
    "skipAccumulatedMessage",
    "resetOffsetByTime",
    "consumeMessage -t AdminTopic -c",
)
# Told by a later release as well, or by no other, or not measured here; the path of the store is nobody's business.
FIGURES_OF_ONE_SIDE: Final = re.compile(
    r"(getTransferredTps|commitLogDiskRatio_|EndTransaction|putMessageFailedTimes|putLatency|sparrowmqVersion)"
)
MASKS: Final = (
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r"\b([0-9A-F]{32}|F[0-9A-F]{55,56})\b( +(?=\d))?", "ID "),
    (r"originalMsgId=[0-9A-F]{32}", "originalMsgId=ID"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d{3})?", "TIME"),
    (r"\b1[78]\d{11}\b", "MILLIS"),
    (r"/\S+/(ours|apache-[\d.]+)/", "/FOLDER/"),
    (r"(physicOffset|physicSize)=\d+", r"\1=PLACE"),
    (r"V[45]_\d+_\d+ +", "VERSION "),
    (r"(prepare resend msg.*queueId=)\d+(\], queueOffset=)\d+", r"\1ANY\2ANY"),
    (r"__CRC32#=\d+, ", ""),
    (r"(storeSize=|ommitLogOffset=|CommitLog Offset: +)\d+", r"\1SIZE"),
    (r"(VERSION.*?) [\d.]+ +0\.\d{4}$", r"\1 HOURS AND SPACE"),
    (r"( DESC:).*", r"\1"),
    (r"^(broker-a +\d+ +true +)\d+$", r"\1RT"),
    (r"(Avg RT: ).*", r"\1RT"),
    (r"(NullPointerException).*", r"\1"),
    (r"\S+Exception: connect to ADDRESS failed", "CANNOT CONNECT"),
    # Apache's first look at the pace of a group comes after ten seconds, and what it tells then is of the next ten.
    (r"(Consume TPS: )[\d.]+", r"\1PACE"),
    (r"(CLUSTERING +)\d+ +", r"\1PACE "),
    (r"\d+\.\d\d +\d+\.\d\d +\d+ +\d+$", "PACE"),  # of statsAll, which looks every ten seconds, too
)


class Admin(Puppet, JavaProcess):
    """The admin tool, kept running; an answer has what it wrote to `out` and `err`.

    Args:
        survives: commands that end their process, which have an answer then; Java 24 and later cannot do it.
        version: of the tool.
    """

    def __init__(self, survives: bool = False, version: str = VERSION) -> None:
        jvm = [*SMALL_HEAP, *(["-Djava.security.manager=allow"] if survives else [])]
        JavaProcess.__init__(self, server_jars(version), jvm, [str(HERE / "java" / "Admin.java")])

    def sign(self, access_key: str, secret_key: str) -> None:
        """From the next command on, as each reads this file."""
        keys = f"accessKey: {access_key}\nsecretKey: {secret_key}\n"
        (self.home / "conf" / "tools.yml").write_text(keys)


@pytest.fixture(scope="module")
def told(tmp_path_factory, apaches_mqadmin) -> dict[str, dict[str, str]]:
    """What each command of the script said, masked, by the name of the side."""
    ours = play(OURS, tmp_path_factory.mktemp("mqadmin"))
    return {OURS: ours, APACHE: apaches_mqadmin.result()}


@pytest.mark.covers("S-ROUTE-07", "S-STORE-06")
@pytest.mark.parametrize("command", SCRIPT)
def test_mqadmin_says_of_us_what_it_says_of_apache(told, command):
    assert told[OURS][command] == told[APACHE][command]


def test_the_script_did_what_it_says(told):
    """Two empty answers would be equal as well."""
    said = told[OURS]
    assert "create topic to ADDRESS success." in said["updateTopic -b {broker} -t AdminTopic -r 2 -w 2"]
    assert "SEND_OK" in said["sendMessage -t AdminTopic -p hello-2 -b broker-a -i 1"]
    assert "OffsetID:            ID" in said["queryMsgById -i {offset_id}"]
    assert said["queryMsgByKey -t AdminTopic -k key-1"].count("\nID ") == 2
    assert "BODY: hello-3" in said["consumeMessage -t AdminTopic -b broker-a -i 1 -o 1 -c 1"]
    assert "TagA || TagB" in said["consumerConnection -g admin-consumer"]
    assert "(admin-producer) instance : clientId=127.0.0.1@admin-online" in said["producer -b {broker}"]
    assert "rollback consumer offset" in said["resetOffsetByTime -g admin-clone -t AdminTopic -s 0"]
    assert "AdminTopic" in said["topicList"] and "Doomed" not in said["topicList"]


@pytest.mark.slow
def test_mqadmin_in_a_process_of_its_own_exits_as_against_apache(target):
    found = mqadmin(VERSION, "topicRoute", "-t", "TBW102", "-n", target.namesrv)
    assert (found.returncode, found.stderr) == (0, "")
    assert target.broker in found.stdout
    failed = mqadmin(VERSION, "topicRoute", "-t", "Absent", "-n", target.namesrv)
    assert (failed.returncode, failed.stdout) == (0, "")
    assert "TopicRouteSubCommand command failed" in failed.stderr and "CODE: 17" in failed.stderr


def play(name, folder, tool=None, script=SCRIPT, survives=False):
    """Play a script against one side, with Java's tool or another one.

    What a command needs of an earlier one's answer it finds in `known`.

    Args:
        survives: see `Admin`.
    """
    said = {}
    # Apache's broker makes its topic of half messages when it first looks for open transactions.
    folder.mkdir(exist_ok=True)
    with running(name, folder, {"transactionCheckInterval": 3_600_000}) as target, Admin(survives) as admin:
        known = {
            "broker": target.broker,
            "folder": str(folder / name),
            "offset_id_of_nothing": offset_id(target.broker, 99_999_999),
        }
        # Apache's broker cannot tell its status in the first second or two.
        status = ("brokerStatus", "-b", target.broker, "-n", target.namesrv)
        deadline = time.monotonic() + BOOT_LIMIT_S
        while "brokerVersion" not in admin.call(*status).get("out", "") and time.monotonic() < deadline:
            time.sleep(0.2)
        for command in script:
            words = [word.format_map(known) for word in command.split()]
            place = [target.namesrv, "AdminTopic"] if words == ["online"] else ["-n", target.namesrv]
            call = admin.call if tool is None or words == ["online"] else tool
            answer = call(*words, *place)
            known |= found_ids(answer.get("out", ""))
            said[command] = masked(command, answer)
    return said


def offset_id(address, offset):
    """The id of a message at a place in a broker's log."""
    host, _, port = address.rpartition(":")
    return f"{bytes(map(int, host.split('.'))).hex()}{int(port):08x}{offset:016x}".upper()


def found_ids(text):
    patterns = {"offset_id": r"OffsetID: +(\w+)", "unique_id": r"SEND_OK +(\w+)"}
    return {name: match[1] for name, pattern in patterns.items() if (match := re.search(pattern, text))}


def masked(command, answer):
    """An answer without what differs between any two clusters."""
    if "out" not in answer:
        return json.dumps(answer)
    lines = [*answer["out"].splitlines(), *errors(answer["err"])]
    if command.startswith("brokerStatus"):
        names = [re.sub(r"^\S+:\d+ +", "", line).partition(":")[0].strip() for line in lines]
        lines = sorted(name for name in names if not FIGURES_OF_ONE_SIDE.match(name))
    # The consumer learns of its retry topic now or 20 s later, and makes a deleted one again by its heartbeat.
    if command.startswith(("consumerProgress", "topicList")):
        lines = [line for line in lines if "%RETRY%" not in line]
    # A command that takes a second is told of, too: its tool tells the broker then that it is there.
    if command.startswith("producer "):
        lines = [line for line in lines if not re.search(r"clientId=\S+@1[78]\d{11},", line)]
    for pattern, mask in MASKS:
        lines = [re.sub(pattern, mask, line) for line in lines]
    if answer.get("exit"):
        lines.append(f"exit {answer['exit']}")
    return "\n".join(sorted(lines) if command.startswith(UNORDERED) else lines)


def errors(text):
    """Of a stack trace: what failed, and why."""
    return [line for line in text.splitlines() if re.match(r"org\.apache|java\.|Caused by", line)]
