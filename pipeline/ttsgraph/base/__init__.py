"""Foundations of all other packages: errors, files, the history, closed settings, secrets, colours
of pictures.
"""
