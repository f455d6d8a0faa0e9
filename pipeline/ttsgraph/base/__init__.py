"""Foundations of all other packages: errors, files, search histories, strict parsing of settings,
protection of secrets, and the colours of pictures.
"""
