"""Content of a profile, as frozen, closed settings."""
