"""Models that know the answer and stand in for real ones in demos and tests, with faults on request."""
