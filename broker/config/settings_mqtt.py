"""The keys of `mqtt`: features that clients are offered, and limits. Those of the Go broker first, then extensions."""

# not compiled: values that are read at the start
from dataclasses import dataclass
from typing import Final

from broker.config.setting import Choice, Duration, Flag, Size, SizeOrShare, Whole, extension, setting
from broker.routing.strategy import STRATEGIES

COUNT_MAX: Final = 2**31 - 1
BYTES_MAX: Final = 2**40


@dataclass(frozen=True, slots=True)
class MqttSettings:
    """Features that clients are offered, and limits."""

    session_expiry: float = setting(
        7200.0,
        "Longest Session Expiry Interval; a client that asks for a longer one gets this. "
        "Sessions of MQTT 3.1.1 without Clean Session get exactly this.",
        Duration(0.0, "2h"),
        "Raising it keeps the queues of clients that never return in memory for longer; "
        "lowering it loses the queued messages of clients that are away for longer.",
    )
    session_expiry_check_timer: float = setting(
        20.0,
        "How often the Go broker looks for expired sessions. Without effect here: each session has its own deadline.",
        Duration(0.001, "20s"),
        aliases=("session_expiry_check_interval",),
    )
    message_expiry: float = setting(
        7200.0,
        "Longest time that a message waits in the queue of a session. A Message Expiry Interval that ends before counts. "
        "0: no limit.",
        Duration(0.0, "2h"),
        "Raising it delivers older messages to clients that return; lowering it drops (and counts) more of them.",
    )
    inflight_expiry: float = setting(
        30.0,
        "Age from which a message that was sent and not acknowledged is the first to be dropped (and counted) when the "
        "queue of its session is full; PUBREC ends that. 0: never.",
        Duration(0.0, "30s"),
        "Raising it keeps what a client has not acknowledged at the price of newer messages; lowering it loses messages "
        "that a slow client was about to acknowledge.",
    )
    sys_interval: float = extension(
        10.0,
        "Time between two publications of the topics below `$SYS/broker`, of which only those that changed are published. "
        "They stay on this node. 0: never.",
        Duration(0.0, "10s"),
    )
    max_packet_size: int = setting(
        268_435_456,
        "Largest packet that a client may send, in bytes with its header. Larger ones close the connection (0x95) "
        "before their content is read. The protocol allows 268435460.",
        Size(16, 2**32 - 1, "1MiB"),
        "Raising it lets one client make the broker hold that much memory; lowering it refuses large messages.",
    )
    server_receive_maximum: int = setting(
        100,
        "Receive Maximum of the server: how many QoS 1 and 2 messages a client may have sent that are not "
        "acknowledged yet.",
        Whole(1, 65535, 100),
        "Raising it takes memory for fast publishers; lowering it costs them round trips.",
    )
    max_keepalive: int = setting(
        300,
        "Longest Keep Alive in seconds. A client of MQTT 5 that asks for more, or for none, gets this one as Server Keep "
        "Alive. MQTT 3.1.1 has no such answer: its clients keep their own. 0: no limit.",
        Whole(0, 65535, 300),
        "Raising it notices dead connections later; lowering it makes idle clients ping more often.",
    )
    topic_alias_maximum: int = setting(
        10,
        "Highest Topic Alias that a client may use. 0: none. The aliases that the broker uses are limited by the client.",
        Whole(0, 65535, 10),
        "Raising it saves bytes of long topics and takes memory for each connection.",
    )
    subscription_identifier_available: bool = setting(
        True, "Whether subscriptions may have a Subscription Identifier (MQTT 5).", Flag()
    )
    wildcard_subscription_available: bool = setting(True, "Whether filters may contain `+` and `#`.", Flag())
    shared_subscription_available: bool = setting(True, "Whether `$share/GROUP/FILTER` may be subscribed.", Flag())
    shared_subscription_strategy: str = extension(
        "local_first",
        "Which member of a shared group gets the next message. `local_first`: the members of the node where it is published "
        "in turn, else those of other nodes. `round_robin`: all members of all nodes in turn. `least_inflight`: the one "
        "with the fewest messages that are not acknowledged; of another node counts what this one has sent there, divided "
        "by its members. `hash_topic`, `hash_clientid`: the same one for a topic, or for a publisher, as long as no member "
        "comes or goes. A member that is away, or whose queue is half full, is passed over.",
        Choice(STRATEGIES),
        "Set it on all nodes of a federation: each tells the others how many members it has, unless it has local_first. "
        "All but local_first send more between nodes. least_inflight, and the first message of a topic or publisher with a "
        "hash, look at each member of the node.",
    )
    maximum_qos: int = setting(
        2,
        "Highest QoS of a PUBLISH and of a subscription.",
        Whole(0, 2, 2),
        "Lowering it saves the state of in-flight messages and refuses publishers that need more.",
    )
    retain_available: bool = setting(True, "Whether messages may be retained.", Flag())
    max_queued_messages: int = setting(
        1000,
        "Most messages in the queue of one session, in-flight ones included. A full queue drops in-flight messages of "
        "inflight_expiry first, then expired ones, then QoS 0, then the oldest, and counts each.",
        Whole(1, COUNT_MAX, 1000),
        "Raising it lets each slow or absent client take more memory; lowering it drops earlier.",
    )
    link_session_expiry: float = extension(
        604_800.0,
        "Longest Session Expiry Interval of a link of another domain, instead of session_expiry.",
        Duration(0.0, "168h"),
        "Raising it keeps messages for domains that are away for longer; lowering it loses them earlier.",
    )
    link_max_queued_messages: int = extension(
        100_000,
        "Most messages in the queue of a link of another domain, instead of max_queued_messages. message_expiry does not "
        "apply to it.",
        Whole(1, COUNT_MAX, 100_000),
        "Raising it lets each domain that is away take more memory; lowering it drops earlier.",
    )
    link_max_queued_bytes: int = extension(
        256 * 2**20,
        "Most bytes of messages in the queue of a link of another domain, instead of max_queued_bytes.",
        Size(1024, BYTES_MAX, "256MiB"),
        "Raising it lets each domain that is away take more memory; lowering it drops large messages earlier.",
    )
    link_max_inflight: int = extension(
        1000,
        "Most in-flight QoS 1 and 2 messages to a link of another domain, instead of max_inflight; its Receive Maximum "
        "(prefetch-count) may lower it. At most link_max_queued_messages.",
        Whole(1, 65535, 1000),
        "Raising it is faster over long distances and repeats more after a reconnect; lowering it costs round trips.",
    )
    link_max_subscriptions: int = extension(
        200_000,
        "Most subscriptions of a link of another domain, instead of max_subscriptions_per_client: the fewest filters that "
        "all clients of its domain need.",
        Whole(1, COUNT_MAX, 200_000),
        "Raising it lets one domain fill the topic tree of every node.",
    )
    max_inflight: int = setting(
        100,
        "Most in-flight QoS 1 and 2 messages to one client; its Receive Maximum may lower it. At most "
        "max_queued_messages.",
        Whole(1, 65535, 100),
        "Raising it is faster over long distances and repeats more after a reconnect; lowering it costs round trips.",
    )
    queue_qos0_messages: bool = setting(
        True, "Whether QoS 0 messages are queued for sessions without a connection.", Flag()
    )
    delivery_mode: str = setting(
        "onlyonce",
        "Copies for a client whose filters overlap: `onlyonce` one, at the highest QoS of them; `overlap` one for each.",
        Choice(("onlyonce", "overlap")),
    )
    allow_zero_length_clientid: bool = setting(
        True, "Whether a client may send an empty client identifier, and gets one from the broker.", Flag()
    )
    client_id_by_user: str = extension(
        "off",
        "Which client identifiers a user may have. `off`: any, so that a client loses its session to one of another user "
        "with its client identifier. `equal`: the user name; it replaces the one of CONNECT. `prefix`: the user name, `:` "
        "and text without `:`; others are refused (0x85). An empty one gets a prefix, or is the user name. Clients without "
        "a user name get a client identifier, and are refused with one of their own.",
        Choice(("off", "prefix", "equal")),
        "With equal a user has one session. Set it on all nodes of a federation: a client identifier belongs to one of "
        "them.",
    )
    connect_timeout: float = extension(
        10.0,
        "Longest time from a new connection to its CONNECT, and from one part of a packet to the next. The whole packet "
        "gets one second more for each 16 KiB. Then the connection is closed. Whether the client is let in is decided within "
        "the same time; where other nodes are asked for its session, within 15 s if that is longer.",
        Duration(0.001, "10s"),
        "Raising it lets idle connections keep file descriptors for longer; lowering it loses clients on slow lines.",
    )
    max_connections: int = extension(
        0,
        "Most connections at one time; the next one is closed at once, and counted. 0, or more than the limit of open "
        "files allows: as many as that limit allows each process (some files are kept for other nodes and the API).",
        Whole(0, COUNT_MAX, 10000),
        "Raising it takes about 6 kB of memory for each idle connection; lowering it protects the existing ones.",
    )
    max_unaccepted_bytes: int = extension(
        64 * 2**20,
        "Most bytes of all connections whose CONNECT is not accepted yet: what they have sent, and the state of TLS. Then "
        "the oldest of them is closed, and counted.",
        Size(2**20, BYTES_MAX, "64MiB"),
        "Raising it lets clients that nobody knows take more memory; lowering it closes connections where thousands of "
        "clients connect at one time, with TLS (40 KiB each) above all.",
    )
    max_memory: str = extension(
        "0",
        "Resident memory of the process, in bytes or as a share of the machine's memory (of its control group's limit, "
        "where that is lower). It is measured after what is free was given back. From there on a client that would begin a "
        "session is refused with 0x97 (Quota exceeded), and QoS 0 messages are not queued; from an eighth above it on "
        "PUBLISH packets of QoS 1 and 2 are refused with 0x97 too, and clients of MQTT 3.1.1 that send them are "
        "disconnected. The node is not ready meanwhile. 0: no limit.",
        SizeOrShare(64 * 2**20, "60%"),
        "Raising it leaves less for the rest of the machine, which may end the process; lowering it refuses clients and "
        "messages earlier.",
    )
    max_sessions: int = extension(
        1_000_000,
        "Most sessions of the node, with and without a connection; a client that needs one more is refused with 0x97 "
        "(Quota exceeded).",
        Whole(1, COUNT_MAX, 1000000),
        "Raising it lets clients with ever new client identifiers take more memory, a queue for each.",
    )
    max_subscriptions_per_client: int = extension(
        10_000,
        "Most subscriptions of one session; one more is refused with 0x97 (Quota exceeded).",
        Whole(1, COUNT_MAX, 10000),
        "Raising it lets one client fill the topic tree of every node.",
    )
    max_topic_levels: int = extension(
        128,
        "Most levels of a topic or filter (one more than its slashes).",
        Whole(1, 128, 128),
        "Lowering it refuses deeper topics. The time of the worst match grows with the levels.",
    )
    max_queued_bytes: int = extension(
        16 * 2**20,
        "Most bytes of messages in the queue of one session, beside max_queued_messages. Drops are counted.",
        Size(1024, BYTES_MAX, "16MiB"),
        "Raising it lets each slow or absent client take more memory; lowering it drops large messages earlier.",
    )
    publisher_hold_max: float = extension(
        0.2,
        "Longest time that a publisher is not read because the queue of a receiver, or the outbox for another node, is "
        "half full; once for each backlog, and at any QoS. Then the bounds of the queue decide what is dropped, and "
        "counted. Links and the event streams of other nodes are publishers too. 0: nobody waits.",
        Duration(0.0, "200ms"),
        "Raising it loses less while a receiver is slow for a moment, and lets a slow receiver slow its publishers.",
    )
    max_retained_messages: int = extension(
        1_000_000,
        "Most retained messages of the node. At the limit messages of new topics are not retained, and counted; those of "
        "known topics still change.",
        Whole(0, COUNT_MAX, 1000000),
        "Raising it lets publishers fill more memory, on every node of the federation.",
    )
    max_retained_bytes: int = extension(
        2**30,
        "Most bytes of retained messages, beside max_retained_messages. A message that does not fit is not retained, and "
        "counted; its topic does not keep an older one either. A message counts as the memory that it may take: 1 KiB, "
        "its payload, its properties, the client id of its publisher and four times its topic.",
        Size(1024, BYTES_MAX, "1GiB"),
        "Raising it lets publishers fill more memory, on every node of the federation.",
    )
    write_buffer_high: int = extension(
        256 * 2**10,
        "Bytes that the network has not taken yet, from which a connection counts as full.",
        Size(4096, 2**30, "256KiB"),
        "Raising it takes memory for each slow receiver; lowering it makes fast receivers full in bursts.",
    )
