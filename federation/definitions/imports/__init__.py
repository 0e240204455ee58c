"""Definitions of links made from the configuration of other brokers: RabbitMQ's federation and mosquitto's bridges."""
