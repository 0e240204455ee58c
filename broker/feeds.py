"""Feeds: subscriptions whose messages come from a plugin, and not from the router.

A topic filter that begins with `$stream/` is for the plugin that has set `HookPoints.feeds`. Its feed hands out one message
after the other, as fast as the client takes them: Receive Maximum, the transport and the messages of other subscriptions come
first. The subscription keeps a position, which the store and other nodes get with it.
"""

# compiled with mypyc
from __future__ import annotations

from mypy_extensions import mypyc_attr

from broker.message import Publication


@mypyc_attr(allow_interpreted_subclasses=True)
class FeedReader:
    """The subscription of a feed, as the plugin sees it.

    client_id  of its client
    """

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id

    def version(self) -> int:
        """Return the protocol version of the client: 3, 4 or 5."""
        raise AssertionError("a subclass implements this")

    def rules(self) -> int:
        """Return a number that changes when `may_have` may answer otherwise than before."""
        raise AssertionError("a subclass implements this")

    def may_have(self, topic: bytes) -> bool:
        """Return whether the client may read messages of the topic."""
        raise AssertionError("a subclass implements this")

    def is_unwanted(self, client_id: str) -> bool:
        """Return whether a message of this publisher is not for the client: No Local."""
        raise AssertionError("a subclass implements this")

    def wake(self, now: float) -> None:
        """The feed has messages again, after `Feed.next` had none. The caller has the shell flush afterwards."""
        raise AssertionError("a subclass implements this")


@mypyc_attr(allow_interpreted_subclasses=True)
class Feed:
    """The messages of one subscription. Calls never wait.

    steps      of a slice (broker/slices.py) that the last `next` took
    is_resting `next` has used up its share of the turn, and wants to be called again in a later one
    """

    def __init__(self) -> None:
        self.steps = 0
        self.is_resting = False

    def next(self, now: float) -> Publication | None:
        """Return the next message, whose `qos` is the one of the publisher, or a Run; None for none now. After that, unless
        `is_resting`, the feed calls `FeedReader.wake` when there is one. `now` is in monotonic seconds."""
        raise AssertionError("a subclass implements this")

    def taken(self) -> None:
        """Note that what `next` gave last was sent, or given up: the position is behind it."""
        raise AssertionError("a subclass implements this")

    def position(self) -> bytes:
        """Return where the subscription goes on, for `Feeds.open`."""
        raise AssertionError("a subclass implements this")

    def close(self) -> None:
        """The subscription has ended. No other call follows."""
        raise AssertionError("a subclass implements this")


@mypyc_attr(allow_interpreted_subclasses=True)
class Feeds:
    """The plugin that serves feeds (`HookPoints.feeds`)."""

    def begin(self, full_filter: bytes, start: str, known: bytes) -> tuple[bytes, bytes]:
        """Return (the filter of the topics whose messages come, the position at which they begin). Raises MqttError, for a
        SUBSCRIBE that is refused.

        full_filter  with `$stream/`
        start        the User Property `from` of SUBSCRIBE, "" for none
        known        the position of the subscription that this one replaces, b"" for none. It is returned where the client
                     has asked for the same again
        """
        raise AssertionError("a subclass implements this")

    def further(self, position: bytes, former: bytes) -> bytes:
        """Return the position of a subscription that was begun anew, now that the session that had it before has come, too:
        what either of them has had does not come again. Where the two have different starts, the later SUBSCRIBE holds."""
        raise AssertionError("a subclass implements this")

    def open(self, reader: FeedReader, position: bytes) -> Feed:
        """Return the feed of a subscription whose client is there. `position` is one of `begin` or of `Feed.position`, maybe
        of another node."""
        raise AssertionError("a subclass implements this")
