"""Bodies in Avro and Protobuf, with the schemas of a registry that has Confluent's API.

registry = Registry("http://registry:8081")
orders = registry.avro("orders-value", schema)      the schema is registered
body = orders.encode({"id": 1})                     00, the schema's id in 4 bytes, Avro
orders.decode(body)                                 with the schema that the body names
"""

from sparrowmq.schemas.registry import Access as Access
from sparrowmq.schemas.wire_format import AvroCodec as AvroCodec
from sparrowmq.schemas.wire_format import ProtobufCodec as ProtobufCodec
from sparrowmq.schemas.wire_format import Registry as Registry
