"""Requests of producers are refused: what is published comes over MQTT."""

from __future__ import annotations

from typing import Final

from broker.kafka.asked_partitions import Asked
from broker.kafka.error_codes import CLUSTER_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED
from broker.kafka.fields import Values

READ_ONLY: Final = "topics are read only here: publish over MQTT"


async def refuse_produce(asked: Asked) -> Values | None:
    """The answer of Produce; None for a producer that wants none (acks 0), whose connection Kafka closes in place of it."""
    request = asked.values
    if request["acks"] == 0:
        return None
    return {
        "responses": [
            {
                "name": topic["name"],
                "partition_responses": [
                    {
                        "index": partition["index"],
                        "error_code": TOPIC_AUTHORIZATION_FAILED,
                        "error_message": READ_ONLY,
                    }
                    for partition in topic["partition_data"]
                ],
            }
            for topic in request["topic_data"]
        ]
    }


async def refuse_producer_id(_asked: Asked) -> Values:
    """The answer of InitProducerId, with which an idempotent or transactional producer begins."""
    return {"error_code": CLUSTER_AUTHORIZATION_FAILED}
