"""Which version of MQTT an upstream is asked in: 5, or 3.1.1 where it has no 5.

A broker without MQTT 5 says so, or closes the connection without an answer. That has other causes, too, such as a proxy whose
broker is away. So 3.1.1 is a guess then. Once it is accepted the link asks for 5 again, at once for the first time, then with
the next connection.
"""

from __future__ import annotations

from broker.codec.packets import MQTT_5, MQTT_311


class Version:
    """Of one address. `current`: of the next CONNECT, or of the connection. `needs_5`: never another one."""

    def __init__(self, needs_5: bool = False) -> None:
        self.current = MQTT_5
        self._needs_5 = needs_5
        self._is_known = False
        self._is_checked = False

    def accepted(self) -> bool:
        """The upstream has accepted a CONNECT. False: it is to be asked in 5 now."""
        if self.current == MQTT_5:
            self._is_known = True
        elif not self._is_known and not self._is_checked:
            self._is_checked = True
            self.current = MQTT_5
            return False
        return True

    def refused(self) -> None:
        """The upstream does not have this version, or it is not enough."""
        self._is_known = True
        self._take_other()

    def unanswered(self) -> None:
        """The upstream has closed the connection without an answer."""
        if not self._is_known:
            self._take_other()

    def ended(self) -> None:
        """A connection that was accepted is over."""
        if not self._is_known:
            self.current = MQTT_5

    def _take_other(self) -> None:
        self.current = MQTT_311 if self.current == MQTT_5 and not self._needs_5 else MQTT_5
