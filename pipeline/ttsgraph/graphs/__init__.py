"""Collaboration graphs: nodes, roles, routers, topologies, costs, stop rules, and distributions
over graphs.
"""
