"""The messages of the table, against what protobuf itself does with them."""

import pytest

from sparrowmq.errors import RemoteProtocolError
from sparrowmq.grpc import wire_types
from sparrowmq.grpc.wire_types import message_class, read


def test_message_has_the_bytes_of_its_numbers():
    made = message_class("Message")(body=b"x")
    made.topic.name = "T"
    made.user_properties["a"] = "b"
    made.system_properties.born_timestamp.seconds = 3
    # field 1: {2: "T"}, field 2: {1: "a", 2: "b"}, field 3: {7: {1: 3}}, field 4: "x"
    assert made.SerializeToString() == b"\x0a\x03\x12\x01T\x12\x06\x0a\x01a\x12\x01b\x1a\x04:\x02\x08\x03\x22\x01x"


def test_field_with_presence_knows_whether_it_is_there():
    system = message_class("SystemProperties")()
    assert not system.HasField("priority")
    system.priority = 0
    assert system.HasField("priority")


def test_fields_of_a_group_exclude_each_other():
    command = message_class("TelemetryCommand")()
    command.settings.client_type = 1
    command.thread_stack_trace.nonce = "n"
    assert not command.HasField("settings")


def test_unknown_fields_do_not_hide_known_ones():
    assert read(message_class("Address"), b"\x0a\x01h\xf8\x07\x01").host == "h"


def test_bytes_that_are_no_message_are_refused():
    with pytest.raises(RemoteProtocolError, match="no Address"):
        read(message_class("Address"), b"\x0a\x7f")


def test_numbers_of_a_message_are_used_once():
    for name in wire_types._MESSAGE_CLASSES:
        numbers = [field.number for field in message_class(name).DESCRIPTOR.fields]
        assert len(numbers) == len(set(numbers)), name
