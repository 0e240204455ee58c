"""The tables of the requests that are answered, and of their answers, without those of consumer groups.

The versions overlap with those of librdkafka, kafka-python and the Java clients 2.1 to 4 (KIP-896 says what version 4 dropped).
"""

from __future__ import annotations

from typing import Final

from broker.kafka.fields import (
    BOOLEAN,
    BYTES,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    VERSION_END,
    ArrayOf,
    Field,
    Message,
)

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
INIT_PRODUCER_ID: Final = 22
OFFSET_FOR_LEADER_EPOCH: Final = 23
SASL_AUTHENTICATE: Final = 36

NOT_ASKED: Final = -(2**31)  # authorized operations, which nobody is told

THROTTLE: Final = Field("throttle_time_ms", INT32, default=0)
THROTTLE_1: Final = THROTTLE._replace(since=1)
THROTTLE_2: Final = THROTTLE._replace(since=2)
THROTTLE_3: Final = THROTTLE._replace(since=3)

API_VERSIONS_REQUEST: Final = Message(
    3, (Field("client_software_name", STRING, 3), Field("client_software_version", STRING, 3))
)
API_VERSIONS_RESPONSE: Final = Message(
    3,
    (
        Field("error_code", INT16),
        Field("api_keys", (Field("api_key", INT16), Field("min_version", INT16), Field("max_version", INT16))),
        THROTTLE_1,
    ),
)

METADATA_REQUEST: Final = Message(
    9,
    (
        Field("topics", (Field("name", STRING),), nullable=1),
        Field("allow_auto_topic_creation", BOOLEAN, 4),
        Field("include_cluster_authorized_operations", BOOLEAN, 8),
        Field("include_topic_authorized_operations", BOOLEAN, 8),
    ),
)
METADATA_RESPONSE: Final = Message(
    9,
    (
        THROTTLE_3,
        Field(
            "brokers",
            (
                Field("node_id", INT32),
                Field("host", STRING),
                Field("port", INT32),
                Field("rack", STRING, 1, nullable=1),
            ),
        ),
        Field("cluster_id", STRING, 2, nullable=2),
        Field("controller_id", INT32, 1),
        Field(
            "topics",
            (
                Field("error_code", INT16),
                Field("name", STRING),
                Field("is_internal", BOOLEAN, 1, default=False),
                Field(
                    "partitions",
                    (
                        Field("error_code", INT16),
                        Field("partition_index", INT32),
                        Field("leader_id", INT32),
                        Field("leader_epoch", INT32, 7, default=-1),
                        Field("replica_nodes", ArrayOf(INT32)),
                        Field("isr_nodes", ArrayOf(INT32)),
                        Field("offline_replicas", ArrayOf(INT32), 5),
                    ),
                ),
                Field("topic_authorized_operations", INT32, 8, default=NOT_ASKED),
            ),
        ),
        Field("cluster_authorized_operations", INT32, 8, default=NOT_ASKED),
    ),
)

FETCH_REQUEST: Final = Message(
    12,
    (
        Field("replica_id", INT32),
        Field("max_wait_ms", INT32),
        Field("min_bytes", INT32),
        Field("max_bytes", INT32),
        Field("isolation_level", INT8),
        Field("session_id", INT32, 7),
        Field("session_epoch", INT32, 7),
        Field(
            "topics",
            (
                Field("topic", STRING),
                Field(
                    "partitions",
                    (
                        Field("partition", INT32),
                        Field("current_leader_epoch", INT32, 9),
                        Field("fetch_offset", INT64),
                        Field("last_fetched_epoch", INT32, 12),
                        Field("log_start_offset", INT64, 5),
                        Field("partition_max_bytes", INT32),
                    ),
                ),
            ),
        ),
        Field("forgotten_topics_data", (Field("topic", STRING), Field("partitions", ArrayOf(INT32))), 7),
        Field("rack_id", STRING, 11),
    ),
)
FETCH_RESPONSE: Final = Message(
    12,
    (
        THROTTLE,
        Field("error_code", INT16, 7, default=0),
        Field("session_id", INT32, 7, default=0),
        Field(
            "responses",
            (
                Field("topic", STRING),
                Field(
                    "partitions",
                    (
                        Field("partition_index", INT32),
                        Field("error_code", INT16),
                        Field("high_watermark", INT64),
                        Field("last_stable_offset", INT64),
                        Field("log_start_offset", INT64, 5),
                        Field("aborted_transactions", (Field("producer_id", INT64), Field("first_offset", INT64))),
                        Field("preferred_read_replica", INT32, 11, default=-1),
                        Field("records", RECORDS, nullable=0),
                    ),
                ),
            ),
        ),
    ),
)

LIST_OFFSETS_REQUEST: Final = Message(
    6,
    (
        Field("replica_id", INT32),
        Field("isolation_level", INT8, 2),
        Field(
            "topics",
            (
                Field("name", STRING),
                Field(
                    "partitions",
                    (
                        Field("partition_index", INT32),
                        Field("current_leader_epoch", INT32, 4),
                        Field("timestamp", INT64),
                    ),
                ),
            ),
        ),
    ),
)
LIST_OFFSETS_RESPONSE: Final = Message(
    6,
    (
        THROTTLE_2,
        Field(
            "topics",
            (
                Field("name", STRING),
                Field(
                    "partitions",
                    (
                        Field("partition_index", INT32),
                        Field("error_code", INT16),
                        Field("timestamp", INT64),
                        Field("offset", INT64),
                        Field("leader_epoch", INT32, 4, default=-1),
                    ),
                ),
            ),
        ),
    ),
)

OFFSET_FOR_LEADER_EPOCH_REQUEST: Final = Message(
    4,
    (
        Field("replica_id", INT32, 3),
        Field(
            "topics",
            (
                Field("topic", STRING),
                Field(
                    "partitions",
                    (Field("partition", INT32), Field("current_leader_epoch", INT32), Field("leader_epoch", INT32)),
                ),
            ),
        ),
    ),
)
OFFSET_FOR_LEADER_EPOCH_RESPONSE: Final = Message(
    4,
    (
        THROTTLE,
        Field(
            "topics",
            (
                Field("topic", STRING),
                Field(
                    "partitions",
                    (
                        Field("error_code", INT16),
                        Field("partition", INT32),
                        Field("leader_epoch", INT32),
                        Field("end_offset", INT64),
                    ),
                ),
            ),
        ),
    ),
)

SASL_HANDSHAKE_REQUEST: Final = Message(VERSION_END, (Field("mechanism", STRING),))
SASL_HANDSHAKE_RESPONSE: Final = Message(
    VERSION_END, (Field("error_code", INT16), Field("mechanisms", ArrayOf(STRING)))
)
SASL_AUTHENTICATE_REQUEST: Final = Message(2, (Field("auth_bytes", BYTES),))
SASL_AUTHENTICATE_RESPONSE: Final = Message(
    2,
    (
        Field("error_code", INT16),
        Field("error_message", STRING, nullable=0),
        Field("auth_bytes", BYTES),
        Field("session_lifetime_ms", INT64, 1, default=0),
    ),
)

# Requests of producers, which are refused.
PRODUCE_REQUEST: Final = Message(
    9,
    (
        Field("transactional_id", STRING, nullable=0),
        Field("acks", INT16),
        Field("timeout_ms", INT32),
        Field(
            "topic_data",
            (
                Field("name", STRING),
                Field("partition_data", (Field("index", INT32), Field("records", BYTES, nullable=0))),
            ),
        ),
    ),
)
PRODUCE_RESPONSE: Final = Message(
    9,
    (
        Field(
            "responses",
            (
                Field("name", STRING),
                Field(
                    "partition_responses",
                    (
                        Field("index", INT32),
                        Field("error_code", INT16),
                        Field("base_offset", INT64, default=-1),
                        Field("log_append_time_ms", INT64, default=-1),
                        Field("log_start_offset", INT64, 5, default=-1),
                        Field(
                            "record_errors",
                            (
                                Field("batch_index", INT32),
                                Field("batch_index_error_message", STRING, nullable=8),
                            ),
                            8,
                            default=(),
                        ),
                        Field("error_message", STRING, 8, nullable=8),
                    ),
                ),
            ),
        ),
        THROTTLE,
    ),
)
INIT_PRODUCER_ID_REQUEST: Final = Message(
    2,
    (
        Field("transactional_id", STRING, nullable=0),
        Field("transaction_timeout_ms", INT32),
        Field("producer_id", INT64, 3),
        Field("producer_epoch", INT16, 3),
    ),
)
INIT_PRODUCER_ID_RESPONSE: Final = Message(
    2,
    (
        THROTTLE,
        Field("error_code", INT16),
        Field("producer_id", INT64, default=-1),
        Field("producer_epoch", INT16, default=-1),
    ),
)
