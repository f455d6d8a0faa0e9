"""OpenAI-compatible endpoints: requests, replies, retries, refusals and connections."""
