"""An MQTT 3.1.1 and 5.0 broker: rules without I/O (codec, topics, session, router) and thin shells (server, api)."""

__version__ = "0.1.0"
