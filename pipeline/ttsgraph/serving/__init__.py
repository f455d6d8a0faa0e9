"""Local model servers: preparing weights, and describing, starting, sharing and stopping
servers.
"""
