"""Receivers merge overlapping subscriptions of one session [MQTT-3.3.4-2]."""

from hypothesis import given
from hypothesis import strategies as st

from broker.routing.route import Receiver
from broker.routing.subscriber import Subscriber
from broker.routing.subscription import Subscription

OPTIONS = st.tuples(st.integers(0, 2), st.booleans(), st.booleans(), st.sampled_from([0, 0, 1, 5, 268_435_455]))


@given(st.lists(OPTIONS, min_size=1, max_size=6))
def test_merge(options: list[tuple[int, bool, bool, int]]) -> None:
    session = Subscriber("c")
    subscriptions = [
        Subscription(session, b"", b"a", qos, no_local, retain_as_published, 0, identifier)
        for qos, no_local, retain_as_published, identifier in options
    ]
    receiver = Receiver(subscriptions[0])
    for subscription in subscriptions[1:]:
        former = receiver.more_identifiers
        receiver.merge(subscription)
        assert former is None or receiver.more_identifiers is former, "a copy each time would cost quadratic time"
    receiver.end_merge()
    check(receiver, session, options)
    assert receiver.no_local == any(no_local for _, no_local, _, _ in options)
    without = [option for option in options if not option[1]]
    if receiver.no_local and without:
        assert receiver.own is not None
        check(receiver.own, session, without)
    else:
        assert receiver.own is None


def check(receiver: Receiver, session: Subscriber, options: list[tuple[int, bool, bool, int]]) -> None:
    """Its options are the merged ones of these subscriptions."""
    assert receiver.session is session
    assert receiver.qos == max(qos for qos, _, _, _ in options)
    assert receiver.retain_as_published == any(retain for _, _, retain, _ in options)
    assert receiver.identifiers == tuple(identifier for _, _, _, identifier in options if identifier)
    own = 0 if receiver.own is None else receiver.own.size()
    assert receiver.size() == 1 + len(receiver.identifiers) + own
