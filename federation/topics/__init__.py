"""Topic filters as sets, and what becomes of topics between domains: definitions and links take both from here."""
