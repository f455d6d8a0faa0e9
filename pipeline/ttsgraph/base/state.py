"""Where a project keeps what is no result."""

from pathlib import Path

STATE = Path(".ttsgraph")
"""Below the working directory: converted models, server logs, the record of running servers, and
the call cache.
"""
