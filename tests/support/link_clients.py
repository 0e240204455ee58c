"""Links of other domains as clients of a broker on virtual time, and the headers of what they send and get."""

from __future__ import annotations

from typing import Any

from broker.codec import properties as props
from broker.codec.packets import Publish
from broker.codec.properties import encode_publish_properties, publish_properties_to_dict
from broker.hooks import ConnectDecider, ConnectRequest
from broker.session.group_queues import GroupQueues
from broker_world import Client, World
from federation.links.bridging.bridging import bridging_of
from federation.links.bridging.headers import encode_connect, encode_limit

NAME = "gmqttd-link"
JOBS = b"$share/workers/jobs/#"


class RoleDecider(ConnectDecider):
    """Clients whose user name is `link` have the role."""

    def decide(self, request: ConnectRequest, now: float) -> None:
        request.is_link = request.username == "link"
        request.accept()


def link_options(
    domain: str = "paris", max_hops: int = 1, relays: bool = False, ttl: float = -1.0, epoch: int = 0
) -> dict[str, Any]:
    value = encode_connect(domain.encode(), max_hops, relays, ttl, epoch).decode()
    return {"properties": {props.USER_PROPERTY: [(NAME, value)]}}


def linked(world: World, domain: str = "paris", max_hops: int = 1, relays: bool = False, **options: Any) -> Client:
    return world.connect(f"link-{domain}", **link_options(domain, max_hops, relays), **options)


def named_world(**limits: Any) -> World:
    world = World(**limits)
    bridging_of(world.broker).home.name = b"berlin"
    return world


def with_header(value: str) -> bytes:
    return encode_publish_properties(user_properties=[(NAME, value)])


def headers(publish: Publish) -> list[str]:
    return [
        text for key, text in props.get_user_properties(publish_properties_to_dict(publish.properties)) if key == NAME
    ]


class JobsUpstream:
    """A broker of the domain berlin that offers the jobs of one group."""

    def __init__(self) -> None:
        self.world = named_world()
        self.queues = GroupQueues(self.world.broker)
        self.consumers = bridging_of(self.world.broker).consumers
        self.consumers.is_open = True
        self.session = self.queues.declare(b"workers", b"jobs/#", 100, 10**6, 0.0, self.world.now)

    def turn(self) -> None:
        while changed := self.consumers.take_changed(self.world.now):
            for full in changed:
                self.consumers.dispatch(full, self.world.now)
            self.world.flush()
        self.world.check()

    def consume(self, link: Client, limit: int) -> list[int]:
        codes = link.subscribe(JOBS, pairs=[(NAME, encode_limit(limit).decode())])
        self.turn()
        return codes
