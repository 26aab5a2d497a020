"""The door to models: a small Protocol, a scripted one, and real ones."""
