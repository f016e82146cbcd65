"""Schemas, values and bodies that several tests read.

The golden bodies were written once by confluent-kafka 2.16.0 (its AvroSerializer and ProtobufSerializer), which is
independent of our code, with ids 1, 2 and 3.
"""

from __future__ import annotations

import datetime as d
from decimal import Decimal
from typing import Any
from uuid import UUID

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "small", "type": "int"},
        {"name": "paid", "type": "boolean"},
        {"name": "weight", "type": "float"},
        {"name": "height", "type": "double"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "raw", "type": "bytes"},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "exactly", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "ref", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
        {"name": "either", "type": ["null", "long", "string"]},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [{"name": "sku", "type": "string"}, {"name": "count", "type": "int"}],
                },
            },
        },
    ],
}
ORDER_VALUE: dict[str, Any] = {
    "id": -7,
    "small": 2**31 - 1,
    "paid": True,
    "weight": 0.5,
    "height": 1e-3,
    "note": "né",
    "raw": b"\0\1",
    "amount": Decimal("-12.34"),
    "day": d.date(2026, 11, 23),
    "at": d.datetime(2026, 11, 23, 12, 0, 0, 5000, tzinfo=d.UTC),
    "exactly": d.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=d.UTC),
    "ref": UUID(int=5),
    "state": "PAID",
    "hash": b"abcd",
    "either": "x",
    "tags": {"a": "b"},
    "lines": [{"sku": "s-1", "count": -3}, {"sku": "", "count": 300}],
}
ORDER_BODY = bytes.fromhex(
    "00000000010dfeffffff0f010000003ffca9f1d24d62503f02066ec3a904000104fb2ed8c4028af8b784c16801483030"
    "3030303030302d303030302d303030302d303030302d3030303030303030303030350261626364040278020261026200"
    "0406732d310500d80400"
)
# google.protobuf.Option(name="color", value=Any(type_url="t/x", value=b"\1")): the third message of its file.
OPTION_BODY = bytes.fromhex("000000000202080a05636f6c6f7212080a03742f78120101")
# google.protobuf.DescriptorProto.ExtensionRange(start=5, end=9): a message inside of another one.
RANGE_BODY = bytes.fromhex("000000000304040008051009")

SHOP = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
import "shop/money.proto";
message Order {
  int64 id = 1;
  uint64 big = 2;
  optional string note = 3;
  repeated Line lines = 4;
  map<string, Money> prices = 5;
  google.protobuf.Timestamp at = 6;
  google.protobuf.Duration took = 7;
  google.protobuf.Int32Value maybe = 8;
  google.protobuf.Struct free = 9;
  enum State { NEW = 0; PAID = 1; }
  State state = 10;
  oneof either { string text = 11; double number = 12; }
  Order parent = 13;
  bytes raw = 14;
  message Line { string sku = 1; int32 count = 2; }
}
message Other { bool yes = 1; }
"""
MONEY = 'syntax = "proto3"; package shop; message Money { int64 units = 1; sint32 nanos = 2; }'
