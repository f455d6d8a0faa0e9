"""The members of a pool: their settings, facts and prices, variants of them, models as judges, and
a simulated pool, whose answers come from a stochastic model.
"""
