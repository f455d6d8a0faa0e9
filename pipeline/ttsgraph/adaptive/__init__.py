"""Graphs that ask only as far as they must: simulated on known answers, paid for on average, and
proposed to a search.
"""
