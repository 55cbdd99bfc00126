"""Where the fields of a batch lie, and what its attribute bits mean.

Magic 2 is `org.apache.kafka.common.record.DefaultRecordBatch` (KIP-98); magic 0 and 1 are `LegacyRecord`. All
numbers are big-endian. The magic byte lies at the same place in all three, so one look tells them apart.
"""

from struct import Struct
from typing import Final

BASE_OFFSET: Final = 0
LENGTH: Final = 8
LEADER_EPOCH: Final = 12
MAGIC: Final = 16
CRC: Final = 17
ATTRIBUTES: Final = 21
LAST_OFFSET_DELTA: Final = 23
BASE_TIMESTAMP: Final = 27
MAX_TIMESTAMP: Final = 35
PRODUCER_ID: Final = 43
PRODUCER_EPOCH: Final = 51
BASE_SEQUENCE: Final = 53
COUNT: Final = 57
HEADER_SIZE: Final = 61

LOG_OVERHEAD: Final = 12
"""Bytes before what the length field counts: the offset and the length itself."""

HEADER: Final = Struct(">qiibIhiqqqhii")
"""The whole header of magic 2."""

BEFORE_CHECKSUM: Final = Struct(">qiibI")
"""Its first part, up to and with the CRC."""

CHECKSUMMED: Final = Struct(">hiqqqhii")
"""Its second part, which the CRC32C covers together with the body."""

ENTRY: Final = Struct(">qi4xb")
"""Offset, length and magic: the start of an entry of any magic."""

ENTRY_SIZE: Final = 17
"""Bytes needed before an entry's magic is known."""

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

NO_CODEC: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

NO_PRODUCER: Final = -1
NO_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1
NO_LEADER_EPOCH: Final = -1

MAGIC_2: Final = 2
MAX_OFFSET: Final = 2**63 - 1
MAX_SEQUENCE: Final = 2**31 - 1

MAX_BATCH_BYTES: Final = 1 << 30
"""No batch is longer: a broker takes requests of 100 MB (socket.request.max.bytes), set high a few times that."""

OLD_CRC: Final = 12
OLD_ATTRIBUTES: Final = 17
OLD_TIMESTAMP: Final = 18
OLD_KEY: Final = (18, 26)
"""Where the key's length lies, by magic."""

OLD_OVERHEAD: Final = (14, 22)
"""The least that an old entry's length can be, by magic: CRC, magic, attributes, (time,) two empty lengths."""

ABORT: Final = 0
COMMIT: Final = 1
"""Control record types (`ControlRecordType`); 2 and more belong to KRaft."""
