"""Foundations of all other packages: errors, files, histories of searches, strict parsing of
settings, protection of secrets, and colours of pictures.
"""
