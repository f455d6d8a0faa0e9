"""A whole search in one call, for Python code and the command line: what is given, how it runs,
what it found.
"""
