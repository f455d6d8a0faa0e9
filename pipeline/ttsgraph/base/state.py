"""Where a project keeps what is no result."""

from pathlib import Path

STATE = Path(".ttsgraph")
"""Below the working directory: converted models, logs, the running servers, the call cache."""
