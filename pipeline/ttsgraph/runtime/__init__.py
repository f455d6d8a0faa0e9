"""Execution of a profile: clients of its models, workers, spending limits, and a check of its
requirements.
"""
