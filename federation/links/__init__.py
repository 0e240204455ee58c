"""Links: MQTT connections to the brokers of other domains, and what they carry."""
