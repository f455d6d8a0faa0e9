"""What the stages do, as functions: flows run them one by one, Python code all at once."""
