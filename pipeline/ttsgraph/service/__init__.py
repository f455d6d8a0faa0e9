"""OpenAI-compatible server for found graphs. `app.App` combines the parts, `server.serve`
runs it.
"""
