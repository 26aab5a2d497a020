"""The agent: runs inside the sandbox and executes the tools."""
