"""The event log of a federation for Apache Spark: data source, sink and jobs."""
