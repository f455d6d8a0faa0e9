"""Models behind OpenAI-compatible endpoints: what is sent, what comes back, and what goes wrong on
the way.
"""
