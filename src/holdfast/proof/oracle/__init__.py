"""Models that know the answer: they stand in for real ones in demos and tests, faults on request."""
