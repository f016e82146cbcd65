"""The places of a record's fields: the one table that the codec, the vectorised columns and `inspect` share.

       0  4  total size
       4  4  magic: V1, V2 (topic longer than 127 bytes), or BLANK (the rest of a log file holds nothing)
       8  4  CRC-32 of the body & 0x7fffffff
      12  4  queue id
      16  4  flag of the application
      20  8  queue offset
      28  8  physical offset: the record's own place in the log
      36  4  system flag; 0x10 and 0x20 say that the born and the store host are IPv6
      40  8  born timestamp, ms
      48  8  born host: address 4, port 4            (IPv6: 20 bytes; all below moves by 12)
      56  8  store timestamp, ms
      64  8  store host                              (IPv6: 20 bytes; all below moves by 12)
      72  4  reconsume times
      76  8  prepared transaction offset
      84  4  body size            88  body
          1  topic size (V2: 2)       topic
          2  properties size          properties

`X_AT` is a field's place from the start of the record, `X_BEHIND_Y` its place from the start of another field.
`BY_HOSTS` are places by the two IPv6 bits of the system flag: 0 none, 1 born, 2 store, 3 both. They are `bytes`, as
compiled code builds a tuple of constants again for each use. All numbers are big-endian.
Source: MessageExtEncoder, MessageDecoder and CommitLog.checkMessageAndReturnSize, Java 4.9.8 and 5.3; the layout also
from bytes of a running 4.9.7.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

SIZE_AT: Final = 0
MAGIC_AT: Final = 4
BODY_CRC_AT: Final = 8
QUEUE_ID_AT: Final = 12
FLAG_AT: Final = 16
QUEUE_OFFSET_AT: Final = 20
PHYSICAL_OFFSET_AT: Final = 28
SYS_FLAG_AT: Final = 36
HOST_BITS_AT: Final = 39  # the byte of the system flag that holds the two IPv6 bits: byte >> 4 & 3
BORN_TIMESTAMP_AT: Final = 40
BORN_HOST_AT: Final = 48

STORE_HOST_BEHIND_STORE_TIMESTAMP: Final = 8
PREPARED_OFFSET_BEHIND_RECONSUME_TIMES: Final = 4
BODY_SIZE_BEHIND_RECONSUME_TIMES: Final = 12
BODY_SIZE_BEHIND_PREPARED_OFFSET: Final = 8
BODY_BEHIND_RECONSUME_TIMES: Final = 16
BODY_SIZE_FIELD: Final = 4
TOPIC_SIZE_FIELD_V1: Final = 1
TOPIC_SIZE_FIELD_V2: Final = 2
PROPERTIES_SIZE_FIELD: Final = 2

CRC_MASK: Final = 0x7FFFFFFF  # Java keeps its CRCs positive
CRC_NAME: Final = b"__CRC32#\x01"
PROPERTY_CRC_SIZE: Final = 20

STORE_TIMESTAMP_BY_HOSTS: Final = bytes((56, 68, 56, 68))
BODY_SIZE_BY_HOSTS: Final = bytes((84, 96, 96, 108))
LONGEST_HEAD: Final = 112  # up to the body, with two IPv6 hosts

MAGIC_V1: Final = 0xDAA320A7 - (1 << 32)
MAGIC_V2: Final = 0xDAA320AB - (1 << 32)
MAGIC_BLANK: Final = 0xCBD43194 - (1 << 32)
MAGIC_BEGIN: Final = b"\xda"  # of V1 and V2
MAGIC_PATTERN: Final = rb"\xda\xa3\x20[\xa7\xab]"  # of V1 and V2, for a search in raw bytes
MAX_SIZE_BYTES: Final = 0x7FFFFFFF
MIN_SIZE_BYTES: Final = 91
MAX_TOPIC_BYTES_V1: Final = 127
MAX_TOPIC_BYTES: Final = 0xFFFF
MAX_PROPERTIES_BYTES: Final = 0x7FFF

INT: Final = Struct(">i")
LONG: Final = Struct(">q")
SHORT: Final = Struct(">h")
PREFIX: Final = Struct(">ii")  # size, magic
# Up to the body, by the two IPv6 bits.
HEADS: Final = tuple(Struct(f">iiiiiqqiq{born}sq{store}siqi") for born, store in ((8, 8), (20, 8), (8, 20), (20, 20)))
