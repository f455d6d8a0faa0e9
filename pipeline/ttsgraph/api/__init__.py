"""A whole search in one call, for Python code and the command line: its inputs, its run and its
result.
"""
