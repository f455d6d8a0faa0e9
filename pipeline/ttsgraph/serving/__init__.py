"""Local model servers: weights made ready, servers described, started, shared and stopped."""
