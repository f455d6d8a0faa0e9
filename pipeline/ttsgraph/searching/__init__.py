"""Search of graphs: agents, the contest with its response model, and the methods behind
one loop.
"""
