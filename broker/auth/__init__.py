"""Who may connect: the rules of authentication."""
