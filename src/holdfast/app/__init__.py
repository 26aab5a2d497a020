"""The programs that users run. Only `config` reads environment variables and settings files."""
