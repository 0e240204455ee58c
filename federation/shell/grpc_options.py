"""Settings of gRPC that both ends of an event stream share."""

from __future__ import annotations

from typing import Final

SERVICE: Final = "gmqtt.federation.api.Federation"
METADATA_NODE_NAME: Final = "node_name"

MESSAGE_BYTES_MIN: Final = 16 * 2**20  # smallest bound of one batch or event, for a small max_packet_size
BATCH_OVERHEAD_MAX: Final = 2**20  # bytes of a batch beside one message of max_packet_size
KEEPALIVE_SECONDS: Final = 10  # of silence, after which gRPC pings the other end; the answer has as long
# The server gives up before the client, as the direct stream (SILENCE_SECONDS_MAX of federation/stream/direct_server.py).
SERVER_ANSWER_SECONDS: Final = 5

# What clients without a login may keep open. A node makes one Hello or one event stream on a connection.
STREAMS_MAX: Final = 16  # calls on one connection
IDLE_SECONDS_MAX: Final = 60.0  # for a connection without a call
HANDSHAKE_SECONDS_MAX: Final = 5.0

Options = list[tuple[str, int]]


def message_bytes_max(max_packet_size: int) -> int:
    """Bytes of the largest batch or event that a stream takes. The largest message that a client may publish fits."""
    return min(max(MESSAGE_BYTES_MIN, max_packet_size + BATCH_OVERHEAD_MAX), 2**31 - 1)


def server_options(bytes_max: int) -> Options:
    return [
        ("grpc.so_reuseport", 0),  # a second server on the port is an error, not a share of its connections
        ("grpc.max_receive_message_length", bytes_max),
        ("grpc.max_send_message_length", -1),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", KEEPALIVE_SECONDS * 500),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.keepalive_time_ms", KEEPALIVE_SECONDS * 1000),
        ("grpc.keepalive_timeout_ms", SERVER_ANSWER_SECONDS * 1000),
        ("grpc.http2.ping_timeout_ms", SERVER_ANSWER_SECONDS * 1000),  # the one that a server's own pings go by
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.max_concurrent_streams", STREAMS_MAX),
        ("grpc.max_connection_idle_ms", int(IDLE_SECONDS_MAX * 1000)),
        ("grpc.server_handshake_timeout_ms", int(HANDSHAKE_SECONDS_MAX * 1000)),
    ]


def client_options(pings: bool) -> Options:
    """`pings`: the other node allows them. A Go broker ends a connection that pings more often than every 5 minutes."""
    options: Options = [
        # Each attempt has a connection of its own: the backoff of gRPC does not add to the sender's.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_retries", 0),
        ("grpc.max_receive_message_length", 2**20),
        ("grpc.max_send_message_length", -1),
    ]
    if pings:
        options += [
            ("grpc.keepalive_time_ms", KEEPALIVE_SECONDS * 1000),
            ("grpc.keepalive_timeout_ms", KEEPALIVE_SECONDS * 1000),
            ("grpc.http2.max_pings_without_data", 0),
        ]
    return options
