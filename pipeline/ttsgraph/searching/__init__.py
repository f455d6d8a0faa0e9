"""Who proposes graphs, and how they are searched: agents, the contest with its response model, and
the methods behind one loop.
"""
