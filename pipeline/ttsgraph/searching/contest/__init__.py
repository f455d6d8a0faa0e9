"""Structured graphs against each other: contenders, probes, mutations, and the contest itself."""
