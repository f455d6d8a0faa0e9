"""Collaboration graphs: nodes and roles, topologies, what they cost, distributions over them, and
their pictures.
"""
