"""Evaluation of a graph on questions: inference, feedback, the objective, progress and
the archive.
"""
