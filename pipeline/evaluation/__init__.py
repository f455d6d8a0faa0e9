"""What an evaluation comes to: the statistics of grades."""
