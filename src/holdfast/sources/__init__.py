"""Sources of events for duties: a Protocol of one verb, a fake, and the real ones; and verification of webhooks."""
