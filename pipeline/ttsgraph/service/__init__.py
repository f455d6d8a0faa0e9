"""Found graphs as models of an OpenAI-compatible server. `app.create_app` puts the parts together,
`server.serve` runs it.
"""
