"""What keeps definitions on disk and carries them to other nodes."""
