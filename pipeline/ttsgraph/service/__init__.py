"""OpenAI-compatible server for found graphs.

`app.App` combines the parts of the server, and `server.serve` runs it.
"""
