"""Bytes <-> packets of MQTT 3.1, 3.1.1 and 5. Imports nothing here: the modules are named where they are used."""
