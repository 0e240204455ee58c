"""Bytes <-> packets of MQTT 3.1, 3.1.1 and 5. Nothing is exported here; import the modules."""
