"""Many more commands for both admin tools: what the script of test_mqadmin.py leaves out, and each with wrong options.

bare        without any option                          usage and 1, or what the command does without
asked       -h, and help in the name's other case       usage
unknown     with an option that there is none of        usage and 1
lacking     without one of the options that it needs    usage and 1
absent      by short names and by long ones, for topics, groups, brokers, clusters and messages that there are none of
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sparrowmq.cli.mqadmin.java_options import Option
from sparrowmq.cli.mqadmin.subcommand_table import COMMANDS_OF_4, Command
from tests.interop.test_mqadmin import SCRIPT

MORE: Final = """
checkMsgSendRT -t AdminTopic -a 3
queryMsgTraceById -i {unique_id}
printMsg -t AdminTopic -s TagC -d false
printMsgByQueue -t AdminTopic -a broker-a -i 1 -f true
consumeMessage -t AdminTopic -c 0
consumeMessage -t AdminTopic -i 0
sendMessage -t AdminTopic -p x -i 0
sendMessage -t AdminTopic -p x -b broker-z -i 0
sendMessage -t Absent$ -p x
getBrokerConfig -b 127.0.0.1:1
exportMetrics -c Nowhere
deleteTopic -c Nowhere -t AdminTopic
updateSubGroup -g lost
updateOrderConf -m put -t Ordered
nothing
""".strip().splitlines()
# It goes to a queue by chance, so nobody looks at queues behind it.
LAST: Final = "queryMsgById -i {offset_id} -s true"
# They go on until they are stopped, write where nobody asked them to, or end what the rest of the script needs.
ENDLESS: Final = {"startMonitoring", "clusterRT"}
WRITES: Final = {"exportConfigs", "exportMetadata", "exportMetrics", "consumerStatus"}
# They make the topic that is to be absent, and begin with a queue by chance.
SENDS: Final = {"sendMsgStatus", "checkMsgSendRT", "sendMessage"}
# Of an option by its long name: what there is none of.
ABSENT: Final = {
    "topic": "Absent",
    "clusterName": "Nowhere",
    "brokerName": "broker-z",
    "brokerAddr": "127.0.0.1:1",
    "groupName": "nobody",
    "consumerGroup": "nobody",
    "producerGroup": "nobody",
    "group": "nobody",
    "srcGroup": "nobody",
    "destGroup": "nobody2",
    "msgId": "7F00000100002A9F00000000000F423F",
}


def steps() -> list[str]:
    """All of them in the order in which they are played; none twice."""
    generated = (step for each in COMMANDS_OF_4 for step in of_command(each))
    return list(dict.fromkeys([*SCRIPT, *MORE, *generated, LAST]))


def of_command(command: Command) -> Iterator[str]:
    """What is generated for one command."""
    if command.name in ENDLESS:
        return
    needed = [each for each in command.own if each.required]
    if needed and command.name not in WRITES:
        yield command.name
    yield f"{command.name} -h"
    yield f"help {command.name.upper()}"
    yield f"{command.name} -Z nonsense"
    for left_out in needed:
        if len(needed) > 1:
            yield " ".join([command.name, *(given(each) for each in needed if each is not left_out)])
    names = {each.name for each in needed}
    if names & ABSENT.keys() and command.name not in WRITES | SENDS:
        yield " ".join([command.name, *map(given, needed)])
        yield " ".join([command.name, *map(given_at_length, needed)])


def given(option: Option) -> str:
    """An option with a value."""
    return f"-{option.letter} {ABSENT.get(option.name, '0')}" if option.has_value else f"-{option.letter}"


def given_at_length(option: Option) -> str:
    """The same by its long name, if Java has not put a blank behind it."""
    return given(option).replace(f"-{option.letter}", f"--{option.name}") if " " not in option.name else given(option)
