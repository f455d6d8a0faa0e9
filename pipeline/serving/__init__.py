"""Servers of models on this machine: what they need of it."""
