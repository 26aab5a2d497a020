"""One session, running: fold the log, decide, act through one door, append the outcome."""
