"""The way outside: one proxy for each session, which lets through what its policy lists and puts secrets in."""
