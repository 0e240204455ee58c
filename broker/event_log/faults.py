"""Errors for callers of the event log who asked for something that they cannot have."""


class LogFault(Exception):
    """A request to the event log cannot be met. The text names what is wrong and what would be right."""


class WrongLogId(LogFault):
    """The log has another id."""


class OutOfRange(LogFault):
    """The offset is not in first_offset..next_offset."""


class NotWritten(LogFault):
    """The disk does not take the records."""
