"""Collaboration graphs: nodes, roles and routers, topologies, what they cost, when they stop, and
distributions over them.
"""
