"""Many sessions: what comes in from outside, and who looks at which session when."""
