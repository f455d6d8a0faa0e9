"""Pools that are tables of answers, and whole searches over them: a test bench that is independent
of the response model.
"""
