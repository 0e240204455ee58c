"""`python -m broker` is the command `gmqttd`."""

from broker.server.cli import main

main()
