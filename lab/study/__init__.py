"""The paper's study on the simulated pool: every method on equal terms over many seeds. All of its
figures are simulated.
"""
