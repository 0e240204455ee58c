"""The command `gmqttctl`: options, tables and calls of nodes, for the commands that packages add (`gmqttctl.commands`)."""
