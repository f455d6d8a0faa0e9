"""What stages share: the records that they leave for each other."""
