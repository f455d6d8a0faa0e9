"""Pools that are tables of answers, and what the contest finds in them: a test bench that shares
nothing with the response model.
"""
