"""Found graphs as models of an OpenAI-compatible server. `app.App` puts the parts together,
`server.serve` runs it.
"""
