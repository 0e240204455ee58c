"""Run by the Python of run/clients: a member of a consumer group, with the library kafka-python or confluent-kafka.

kafka_consumer_driver.py LIBRARY SERVERS GROUP TOPIC COUNT [MECHANISM USER PASSWORD]

It prints a JSON list for each record: partition, offset, key, value; after COUNT records it commits and ends. Another line is
the library's error.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

SECONDS_MAX = 120.0  # that it waits for COUNT records
SESSION_SECONDS = 6


def tell(partition: int, offset: int, key: bytes, value: bytes) -> None:
    print(json.dumps([partition, offset, key.decode(), value.decode()]), flush=True)


def run_kafka_python(servers: str, group: str, topic: str, count: int, sasl: list[str]) -> None:
    from kafka import KafkaConsumer  # type: ignore[import-not-found]

    login: dict[str, Any] = {}
    if sasl:
        login = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": sasl[0],
            "sasl_plain_username": sasl[1],
            "sasl_plain_password": sasl[2],
        }
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=servers.split(","),
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=1000 * SESSION_SECONDS,
        consumer_timeout_ms=int(1000 * SECONDS_MAX),
        **login,
    )
    for _ in range(count):
        record = next(consumer)
        tell(record.partition, record.offset, record.key, record.value)
    consumer.commit()
    consumer.close()


def run_confluent_kafka(servers: str, group: str, topic: str, count: int, sasl: list[str]) -> None:
    from confluent_kafka import Consumer, KafkaException  # type: ignore[import-not-found]

    settings: dict[str, Any] = {
        "bootstrap.servers": servers,
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 1000 * SESSION_SECONDS,
    }
    if sasl:
        settings |= {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": sasl[0],
            "sasl.username": sasl[1],
            "sasl.password": sasl[2],
        }

    def failed(error: Any) -> None:
        if error.name() == "_AUTHENTICATION":
            raise KafkaException(error)

    consumer = Consumer(settings | {"error_cb": failed})
    consumer.subscribe([topic])
    until = time.monotonic() + SECONDS_MAX
    found = 0
    while found < count and time.monotonic() < until:
        record = consumer.poll(0.5)
        if record is not None and record.error() is not None:
            print(record.error(), flush=True)
        elif record is not None:
            tell(record.partition(), record.offset(), record.key(), record.value())
            found += 1
    consumer.commit(asynchronous=False)
    consumer.close()


def main() -> None:
    library, servers, group, topic, count, *sasl = sys.argv[1:]
    run = run_kafka_python if library == "kafka" else run_confluent_kafka
    try:
        run(servers, group, topic, int(count), sasl)
    except Exception as error:
        print(f"{type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    main()
