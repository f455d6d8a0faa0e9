"""What a profile says, as frozen, closed settings."""
