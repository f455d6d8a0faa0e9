"""Computations of the stages around a search, and the tables that they write."""
