"""The routes that are known: one for each topic of which a message came, until subscriptions change."""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.routing.route import Route

ROUTES_MAX: Final = 65_536  # topics; a full cache is cleared
ROUTE_RECEIVERS_MAX: Final = 500_000
"""Of all routes together, some 90 bytes each: the sum of Route.size."""
ROUTE_TOPIC_BYTES_MAX: Final = 1024  # longer topics are not cached


class RouteCache:
    """routes     by topic name
    receivers  of all of them: what counts for ROUTE_RECEIVERS_MAX
    """

    def __init__(self) -> None:
        self.routes: dict[bytes, Route] = {}
        self.receivers = 0

    def keep(self, route: Route) -> bool:
        """Add a route that is not in the cache. True when the others were removed, because the cache was full."""
        if not route.is_kept or len(route.topic) > ROUTE_TOPIC_BYTES_MAX:
            return False
        routes = self.routes
        is_full = len(routes) >= ROUTES_MAX or self.receivers + route.size > ROUTE_RECEIVERS_MAX
        is_full = is_full and len(routes) > 0
        if is_full:
            self.clear()
        routes[route.topic] = route
        self.receivers += route.size
        return is_full

    def remove(self, topic: bytes) -> None:
        """Harmless for a topic that is not in the cache."""
        route = self.routes.pop(topic, None)
        if route is not None:
            self.receivers -= route.size

    def clear(self) -> None:
        self.routes.clear()
        self.receivers = 0
