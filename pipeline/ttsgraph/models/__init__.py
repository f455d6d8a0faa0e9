"""What a model call is, in which dialects it is written, and the caches that make it only once."""
