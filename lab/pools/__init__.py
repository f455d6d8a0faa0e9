"""Pools that are tables of answers, and whole searches in them: a test bench independent of the
response model.
"""
