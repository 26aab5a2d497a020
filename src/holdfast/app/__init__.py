"""The programs that people run. `config` is the only place that reads environment and files."""
