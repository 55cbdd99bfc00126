"""Where fields lie: the numbers agree with each other and with an independent client's."""

from kafka.record.default_records import DefaultRecordBase
from kafka.record.legacy_records import LegacyRecordBase

from twinlog.batch import layout


def test_the_header_is_its_two_parts() -> None:
    """What goes before the checksum and what it covers make up the header, without a gap."""
    assert layout.HEADER.size == layout.HEADER_SIZE
    assert layout.BEFORE_CHECKSUM.size == layout.ATTRIBUTES
    assert layout.BEFORE_CHECKSUM.size + layout.CHECKSUMMED.size == layout.HEADER_SIZE
    assert layout.BEFORE_CHECKSUM.format + layout.CHECKSUMMED.format[1:] == layout.HEADER.format


def test_each_field_lies_where_its_number_says() -> None:
    """Packing ascending values finds each of them at its named place."""
    places = [
        (layout.BASE_OFFSET, 8),
        (layout.LENGTH, 4),
        (layout.LEADER_EPOCH, 4),
        (layout.MAGIC, 1),
        (layout.CRC, 4),
        (layout.ATTRIBUTES, 2),
        (layout.LAST_OFFSET_DELTA, 4),
        (layout.BASE_TIMESTAMP, 8),
        (layout.MAX_TIMESTAMP, 8),
        (layout.PRODUCER_ID, 8),
        (layout.PRODUCER_EPOCH, 2),
        (layout.BASE_SEQUENCE, 4),
        (layout.COUNT, 4),
    ]
    header = layout.HEADER.pack(*range(1, 14))
    assert [int.from_bytes(header[at : at + size], "big") for at, size in places] == list(range(1, 14))


def test_the_entry_of_every_magic_starts_alike() -> None:
    """Offset, length and magic are read from the same places, whatever the magic."""
    assert layout.ENTRY.size == layout.ENTRY_SIZE == layout.MAGIC + 1
    assert layout.ENTRY.unpack(bytes(7) + b"\x07" + bytes(3) + b"\x08" + b"crc." + b"\x02") == (7, 8, 2)
    assert layout.OLD_OVERHEAD == (14, 22)
    assert layout.OLD_KEY == (layout.OLD_TIMESTAMP, layout.OLD_TIMESTAMP + 8)


def test_the_bits_are_those_of_an_independent_client() -> None:
    """kafka-python knows the same attribute bits and overheads."""
    assert layout.HEADER.format == DefaultRecordBase.HEADER_STRUCT.format
    assert layout.CODEC_MASK == DefaultRecordBase.CODEC_MASK
    assert layout.LOG_APPEND_TIME_BIT == DefaultRecordBase.TIMESTAMP_TYPE_MASK
    assert layout.TRANSACTIONAL_BIT == DefaultRecordBase.TRANSACTIONAL_MASK
    assert layout.CONTROL_BIT == DefaultRecordBase.CONTROL_MASK
    assert layout.LOG_OVERHEAD == LegacyRecordBase.LOG_OVERHEAD
    codecs = (layout.NO_CODEC, layout.GZIP, layout.SNAPPY, layout.LZ4, layout.ZSTD)
    assert codecs == (
        DefaultRecordBase.CODEC_NONE,
        DefaultRecordBase.CODEC_GZIP,
        DefaultRecordBase.CODEC_SNAPPY,
        DefaultRecordBase.CODEC_LZ4,
        DefaultRecordBase.CODEC_ZSTD,
    )
