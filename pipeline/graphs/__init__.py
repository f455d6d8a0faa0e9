"""Collaboration graphs: what they are made of."""
