"""The supervisor: runs beside the sandbox, keeps its journal, and enforces its limits."""
