"""Pools that are tables of answers, and what whole searches select in them: a test bench that
shares nothing with the response model.
"""
