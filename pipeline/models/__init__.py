"""Models: what a call is, how a pool is described and served, and the cache that makes a call only once."""
