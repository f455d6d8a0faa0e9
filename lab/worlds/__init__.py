"""Simulated worlds: pools whose models behave otherwise than those that a search was tuned on. All
their figures are simulated.
"""
