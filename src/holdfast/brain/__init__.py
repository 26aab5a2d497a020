"""Runtime of one session: fold the log, decide, act through one door, append the outcome."""
