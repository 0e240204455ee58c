"""The tables of the requests of consumer groups, and of their answers."""

from __future__ import annotations

from typing import Final

from broker.kafka.fields import BOOLEAN, BYTES, INT8, INT16, INT32, INT64, STRING, ArrayOf, Field, Message
from broker.kafka.messages import NOT_ASKED, THROTTLE_1, THROTTLE_2, THROTTLE_3

OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
JOIN_GROUP: Final = 11
HEARTBEAT: Final = 12
LEAVE_GROUP: Final = 13
SYNC_GROUP: Final = 14
DESCRIBE_GROUPS: Final = 15
LIST_GROUPS: Final = 16

ERROR: Final = Field("error_code", INT16)

FIND_COORDINATOR_REQUEST: Final = Message(3, (Field("key", STRING), Field("key_type", INT8, 1)))
FIND_COORDINATOR_RESPONSE: Final = Message(
    3,
    (
        THROTTLE_1,
        ERROR,
        Field("error_message", STRING, 1, nullable=1),
        Field("node_id", INT32),
        Field("host", STRING),
        Field("port", INT32),
    ),
)

OFFSET_COMMIT_REQUEST: Final = Message(
    8,
    (
        Field("group_id", STRING),
        Field("generation_id", INT32, 1),
        Field("member_id", STRING, 1),
        Field("group_instance_id", STRING, 7, nullable=7),
        Field("retention_time_ms", INT64, 2, 5),
        Field(
            "topics",
            (
                Field("name", STRING),
                Field(
                    "partitions",
                    (
                        Field("partition_index", INT32),
                        Field("committed_offset", INT64),
                        Field("committed_leader_epoch", INT32, 6),
                        Field("commit_timestamp", INT64, 1, 2),
                        Field("committed_metadata", STRING, nullable=0),
                    ),
                ),
            ),
        ),
    ),
)
OFFSET_COMMIT_RESPONSE: Final = Message(
    8,
    (
        THROTTLE_3,
        Field("topics", (Field("name", STRING), Field("partitions", (Field("partition_index", INT32), ERROR)))),
    ),
)

OFFSET_FETCH_REQUEST: Final = Message(
    6,
    (
        Field("group_id", STRING),
        Field("topics", (Field("name", STRING), Field("partition_indexes", ArrayOf(INT32))), nullable=2),
        Field("require_stable", BOOLEAN, 7),
    ),
)
OFFSET_FETCH_RESPONSE: Final = Message(
    6,
    (
        THROTTLE_3,
        Field(
            "topics",
            (
                Field("name", STRING),
                Field(
                    "partitions",
                    (
                        Field("partition_index", INT32),
                        Field("committed_offset", INT64),
                        Field("committed_leader_epoch", INT32, 5, default=-1),
                        Field("metadata", STRING, nullable=0),
                        ERROR,
                    ),
                ),
            ),
        ),
        ERROR._replace(since=2),
    ),
)

JOIN_GROUP_REQUEST: Final = Message(
    6,
    (
        Field("group_id", STRING),
        Field("session_timeout_ms", INT32),
        Field("rebalance_timeout_ms", INT32, 1),
        Field("member_id", STRING),
        Field("group_instance_id", STRING, 5, nullable=5),
        Field("protocol_type", STRING),
        Field("protocols", (Field("name", STRING), Field("metadata", BYTES))),
    ),
)
JOIN_GROUP_RESPONSE: Final = Message(
    6,
    (
        THROTTLE_2,
        ERROR,
        Field("generation_id", INT32),
        Field("protocol_type", STRING, 7, nullable=7),
        Field("protocol_name", STRING, nullable=7),
        Field("leader", STRING),
        Field("member_id", STRING),
        Field(
            "members",
            (
                Field("member_id", STRING),
                Field("group_instance_id", STRING, 5, nullable=5),
                Field("metadata", BYTES),
            ),
        ),
    ),
)

SYNC_GROUP_REQUEST: Final = Message(
    4,
    (
        Field("group_id", STRING),
        Field("generation_id", INT32),
        Field("member_id", STRING),
        Field("group_instance_id", STRING, 3, nullable=3),
        Field("protocol_type", STRING, 5, nullable=5),
        Field("protocol_name", STRING, 5, nullable=5),
        Field("assignments", (Field("member_id", STRING), Field("assignment", BYTES))),
    ),
)
SYNC_GROUP_RESPONSE: Final = Message(
    4,
    (
        THROTTLE_1,
        ERROR,
        Field("protocol_type", STRING, 5, nullable=5),
        Field("protocol_name", STRING, 5, nullable=5),
        Field("assignment", BYTES),
    ),
)

HEARTBEAT_REQUEST: Final = Message(
    4,
    (
        Field("group_id", STRING),
        Field("generation_id", INT32),
        Field("member_id", STRING),
        Field("group_instance_id", STRING, 3, nullable=3),
    ),
)
HEARTBEAT_RESPONSE: Final = Message(4, (THROTTLE_1, ERROR))

LEAVE_GROUP_REQUEST: Final = Message(
    4,
    (
        Field("group_id", STRING),
        Field("member_id", STRING, 0, 3),
        Field("members", (Field("member_id", STRING), Field("group_instance_id", STRING, nullable=3)), 3),
    ),
)
LEAVE_GROUP_RESPONSE: Final = Message(
    4,
    (
        THROTTLE_1,
        ERROR,
        Field("members", (Field("member_id", STRING), Field("group_instance_id", STRING, nullable=3), ERROR), 3),
    ),
)

DESCRIBE_GROUPS_REQUEST: Final = Message(
    5, (Field("groups", ArrayOf(STRING)), Field("include_authorized_operations", BOOLEAN, 3))
)
DESCRIBE_GROUPS_RESPONSE: Final = Message(
    5,
    (
        THROTTLE_1,
        Field(
            "groups",
            (
                ERROR,
                Field("group_id", STRING),
                Field("group_state", STRING),
                Field("protocol_type", STRING),
                Field("protocol_data", STRING),
                Field(
                    "members",
                    (
                        Field("member_id", STRING),
                        Field("group_instance_id", STRING, 4, nullable=4),
                        Field("client_id", STRING),
                        Field("client_host", STRING),
                        Field("member_metadata", BYTES),
                        Field("member_assignment", BYTES),
                    ),
                ),
                Field("authorized_operations", INT32, 3, default=NOT_ASKED),
            ),
        ),
    ),
)
LIST_GROUPS_REQUEST: Final = Message(3, (Field("states_filter", ArrayOf(STRING), 4),))
LIST_GROUPS_RESPONSE: Final = Message(
    3,
    (
        THROTTLE_1,
        ERROR,
        Field("groups", (Field("group_id", STRING), Field("protocol_type", STRING), Field("group_state", STRING, 4))),
    ),
)
