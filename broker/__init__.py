"""An MQTT 3.1.1 and 5.0 broker: cores without I/O (codec, routing, session) and thin shells (server, api)."""

__version__ = "0.1.0"
