"""What a caller of the event log asked for and cannot have."""


class LogFault(Exception):
    """What a caller asked for cannot be done. The text names what is wrong and what would be right."""


class WrongLogId(LogFault):
    """The log has another id."""


class OutOfRange(LogFault):
    """The offset is not in first_offset..next_offset."""


class NotWritten(LogFault):
    """The disk does not take the records."""
