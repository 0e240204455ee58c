"""The plugin `auth` decides which clients may connect, and what they may do with topics."""
