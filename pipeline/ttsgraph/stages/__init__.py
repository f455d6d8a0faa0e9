"""What the stages around a search compute, and the tables that they write."""
