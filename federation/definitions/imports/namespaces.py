"""Exchanges and virtual hosts of RabbitMQ as topics of MQTT.

An exchange is a name space: its messages have topics that begin with its name, and a dot of the name separates levels as it
does in routing keys. `amq.topic` has the topics of RabbitMQ's own MQTT plugin, without a name in front. The virtual host `/`
is no level, each other one is in front of the rest.
"""

from __future__ import annotations

from typing import Final

DEFAULT_VHOST: Final = "/"
MQTT_EXCHANGE: Final = "amq.topic"


def prefix_of(vhost: str) -> str:
    """Return the prefix of all topics of a virtual host: empty, or levels with a `/` behind them."""
    levels = vhost.strip("/")
    return f"{levels}/" if levels else ""


def topics_of(vhost: str, exchange: str) -> str:
    """The filter of all topics of an exchange."""
    name = "" if exchange == MQTT_EXCHANGE else exchange.replace(".", "/") + "/"
    return f"{prefix_of(vhost)}{name}#"


def mapping_rule(upstream_filter: str, local_filter: str) -> str:
    """The rule of a mapping between two filters that end with `#`."""
    return f"{upstream_filter} -> {local_filter[:-1]}{{#}}"
