"""Members of a pool: settings, facts and prices, variants, models as judges, and a simulated pool
with a stochastic model of answers.
"""
