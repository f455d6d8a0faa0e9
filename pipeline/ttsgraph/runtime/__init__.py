"""A profile at work: clients of its models, workers, limits, and whether all that it needs is
there.
"""
