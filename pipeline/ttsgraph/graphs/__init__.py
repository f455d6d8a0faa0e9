"""Collaboration graphs: nodes and roles, topologies, what they cost, and distributions over
them.
"""
