"""The keys of `mqtt`: what the broker offers to its clients, and its limits. Those of gmqttd first, then ours."""

from dataclasses import dataclass
from typing import Annotated, Final

from broker.config.setting import Choice, Duration, Flag, Setting, Size, Source, Whole

COUNT_MAX: Final = 2**31 - 1
BYTES_MAX: Final = 2**40


@dataclass(frozen=True, slots=True)
class MqttSettings:
    """What the broker offers to its clients, and its limits."""

    session_expiry: Annotated[
        float,
        Setting(
            "Longest time that a session is kept after its connection ended; a client that asks for more gets this. "
            "Sessions of MQTT 3.1.1 without clean session get exactly this.",
            Duration(0.0, "2h"),
            "Raising it keeps the queues of clients that never come back in memory for longer; "
            "lowering it loses messages of clients that are away for longer.",
        ),
    ] = 7200.0
    session_expiry_check_timer: Annotated[
        float,
        Setting(
            "How often the Go broker looks for expired sessions. Here each session ends at its own deadline.",
            Duration(0.001, "20s"),
            aliases=("session_expiry_check_interval",),
        ),
    ] = 20.0
    message_expiry: Annotated[
        float,
        Setting(
            "Longest life of a message in a queue; one with a longer expiry, or none, gets this. 0: no limit.",
            Duration(0.0, "2h"),
            "Raising it brings older messages to clients that return; lowering it drops (and counts) more of them.",
        ),
    ] = 7200.0
    inflight_expiry: Annotated[
        float,
        Setting(
            "Age from which a message that was sent but not acknowledged may be dropped when its queue is full.",
            Duration(0.0, "30s"),
            later="what is in flight is kept until it is acknowledged, and counts in max_queued_messages",
        ),
    ] = 30.0
    max_packet_size: Annotated[
        int,
        Setting(
            "Largest packet that a client may send, in bytes with its header. Larger ones close the connection (0x95) "
            "before their content is read. MQTT itself allows 268435460.",
            Size(16, 2**32 - 1, "1MiB"),
            "Raising it lets one client make the broker hold that much memory; lowering it refuses large messages.",
        ),
    ] = 268_435_456
    server_receive_maximum: Annotated[
        int,
        Setting(
            "How many QoS 1 and 2 messages a client may have sent without their acknowledgement "
            "(Receive Maximum of the server).",
            Whole(1, 65535, 100),
            "Raising it lets fast publishers run further ahead in memory; lowering it costs them round trips.",
        ),
    ] = 100
    max_keepalive: Annotated[
        int,
        Setting(
            "Longest keep alive in seconds. A client of MQTT 5 that asks for more, or for none, is told to keep this one "
            "and watched with it; those of 3.1.1 cannot be told, and keep their own. 0: no limit.",
            Whole(0, 65535, 300),
            "Raising it notices dead connections later; lowering it costs a ping of each idle client that often.",
        ),
    ] = 300
    topic_alias_maximum: Annotated[
        int,
        Setting(
            "Highest topic alias that a client may use. 0: none. The broker itself sends whole topics.",
            Whole(0, 65535, 10),
            "Raising it saves bytes of long topics and takes memory for each connection.",
        ),
    ] = 10
    subscription_identifier_available: Annotated[
        bool, Setting("Whether subscriptions may carry an identifier (MQTT 5).", Flag())
    ] = True
    wildcard_subscription_available: Annotated[bool, Setting("Whether filters may contain `+` and `#`.", Flag())] = True
    shared_subscription_available: Annotated[
        bool, Setting("Whether `$share/GROUP/FILTER` may be subscribed.", Flag())
    ] = True
    maximum_qos: Annotated[
        int,
        Setting(
            "Highest quality of service of a PUBLISH, and of a subscription.",
            Whole(0, 2, 2),
            "Lowering it saves state of in-flight messages and refuses publishers that need more.",
        ),
    ] = 2
    retain_available: Annotated[bool, Setting("Whether messages may be retained.", Flag())] = True
    max_queued_messages: Annotated[
        int,
        Setting(
            "Most messages that wait for one session, those in flight included. A full queue drops by the rule of "
            "the session's queue and counts each drop.",
            Whole(1, COUNT_MAX, 1000),
            "Raising it lets each slow or absent client take more memory; lowering it drops earlier.",
        ),
    ] = 1000
    max_inflight: Annotated[
        int,
        Setting(
            "Most QoS 1 and 2 messages on the way to one client without acknowledgement; "
            "the client's Receive Maximum may lower it. At most max_queued_messages.",
            Whole(1, 65535, 100),
            "Raising it is faster over long distances, repeats more after a reconnect; lowering it costs round trips.",
        ),
    ] = 100
    queue_qos0_messages: Annotated[
        bool,
        Setting("Whether QoS 0 messages are kept for sessions that are away, as far as their queue has room.", Flag()),
    ] = True
    delivery_mode: Annotated[
        str,
        Setting(
            "What a client gets whose filters overlap: `onlyonce` one copy at the highest QoS of them, "
            "`overlap` one copy for each.",
            Choice(("onlyonce", "overlap")),
        ),
    ] = "onlyonce"
    allow_zero_length_clientid: Annotated[
        bool, Setting("Whether a client may leave its identifier empty and get one from the broker.", Flag())
    ] = True
    connect_timeout: Annotated[
        float,
        Setting(
            "Time within which a new connection must have sent its CONNECT, and any connection the rest of a packet "
            "that it began. Past it the connection is closed.",
            Duration(0.001, "10s"),
            "Raising it lets idle strangers hold file descriptors for longer; lowering it loses clients on slow lines.",
            source=Source.EXTENSION,
        ),
    ] = 10.0
    max_connections: Annotated[
        int,
        Setting(
            "Most connections at one time; the next one is closed at once, and counted. 0, or more than there are open "
            "files for: as many as there are files for (some are kept for other nodes and the API).",
            Whole(0, COUNT_MAX, 10000),
            "Raising it needs about 6 kB of memory for each idle connection; lowering it protects those there are.",
            source=Source.EXTENSION,
        ),
    ] = 0
    max_sessions: Annotated[
        int,
        Setting(
            "Most sessions of the node, those of clients that are away included; a client that would begin one more is "
            "refused with 0x97 (quota exceeded).",
            Whole(1, COUNT_MAX, 1000000),
            "Raising it lets clients that come under ever new identifiers take more memory, each with a queue.",
            source=Source.EXTENSION,
        ),
    ] = 1_000_000
    max_subscriptions_per_client: Annotated[
        int,
        Setting(
            "Most subscriptions of one session; more are answered with 0x97 (quota exceeded) and change nothing.",
            Whole(1, COUNT_MAX, 10000),
            "Raising it lets one client fill the topic tree of every node.",
            source=Source.EXTENSION,
        ),
    ] = 10_000
    max_topic_levels: Annotated[
        int,
        Setting(
            "Most levels of a topic or filter (one more than its slashes).",
            Whole(1, 128, 128),
            "Lowering it refuses deeper topics and makes the worst match cheaper: its time grows with the levels.",
            source=Source.EXTENSION,
        ),
    ] = 128
    max_queued_bytes: Annotated[
        int,
        Setting(
            "Most bytes of messages that wait for one session, beside max_queued_messages. Drops are counted.",
            Size(1024, BYTES_MAX, "16MiB"),
            "Raising it lets each slow or absent client take more memory; lowering it drops large messages earlier.",
            source=Source.EXTENSION,
        ),
    ] = 16 * 2**20
    publisher_hold_max: Annotated[
        float,
        Setting(
            "Longest time that a QoS 0 publisher is not read because a receiver of its messages is full; "
            "past it messages to that receiver are dropped and counted. 0: drop at once.",
            Duration(0.0, "200ms"),
            "Raising it loses less when receivers are slow for a moment, but lets a slow receiver slow its publishers.",
            source=Source.EXTENSION,
        ),
    ] = 0.2
    max_retained_messages: Annotated[
        int,
        Setting(
            "Most retained messages of the node; at the limit new topics are not retained (and counted), "
            "known ones still change.",
            Whole(0, COUNT_MAX, 1000000),
            "Raising it lets publishers fill more memory, on every node of the federation.",
            source=Source.EXTENSION,
        ),
    ] = 1_000_000
    max_retained_bytes: Annotated[
        int,
        Setting(
            "Most bytes of retained messages, beside max_retained_messages. One that does not fit is not retained (and "
            "counted), and its topic keeps no older one either. Each counts as the memory that it may take: 1 KiB, its "
            "payload, its properties, the client id of its publisher and four times its topic.",
            Size(1024, BYTES_MAX, "1GiB"),
            "Raising it lets publishers fill more memory, on every node of the federation.",
            source=Source.EXTENSION,
        ),
    ] = 2**30
    write_buffer_high: Annotated[
        int,
        Setting(
            "Bytes written to a connection but not taken by its network from which it counts as full.",
            Size(4096, 2**30, "256KiB"),
            "Raising it takes memory for each slow receiver; lowering it makes fast receivers full in bursts.",
            source=Source.EXTENSION,
        ),
    ] = 256 * 2**10
