"""Recording what profile coder's models answer, so that searches over them need no model."""
