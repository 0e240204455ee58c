"""The event log of a federation for Apache Spark: data source, sink and jobs."""

from pipeline.session import register, spark_session

__all__ = ["register", "spark_session"]
