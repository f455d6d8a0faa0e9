"""The paper's study on the simulated pool: every method on equal terms over many seeds. All figures
of the study are simulated.
"""
