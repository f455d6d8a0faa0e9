"""Model calls: requests, completions, endpoint dialects, recordings and the call cache."""
