"""Recording of the answers of profile coder's models, so that searches over them need no model."""
