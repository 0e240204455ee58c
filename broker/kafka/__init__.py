"""The event log over Kafka's protocol, read only."""
