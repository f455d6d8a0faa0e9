"""Members of a pool: settings, facts and prices, variants, models as judges, and a simulated pool
whose answers are drawn from probability distributions.
"""
