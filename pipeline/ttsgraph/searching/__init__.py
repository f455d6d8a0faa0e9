"""Search for graphs: agents, the contest with its response model, and the methods, all run by one
loop.
"""
