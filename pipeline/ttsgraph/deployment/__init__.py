"""Deployment of a found graph: its bundle, its provenance, and its promotion."""
