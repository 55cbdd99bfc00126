"""twinlog: a topic on one Kafka cluster as the exact twin, offset by offset, of a topic on another.

`batch` knows the log as bytes and `config` what users set. `wire` speaks to a cluster, `control` and `state` say and
keep what is mirrored, `relay` carries one partition, `sync` what belongs to a topic beside its records. `verify`
compares two topics. `admin` is what programs call, `service` what a worker runs, `cli` what people type.
"""
