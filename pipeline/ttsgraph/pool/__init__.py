"""The members of a pool: their settings, facts and prices, variants of them, and models as
judges.
"""
