"""Structured graphs against each other: contenders, probes, mutations, races, and the contest
itself.
"""
