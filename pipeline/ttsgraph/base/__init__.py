"""Foundations of all other packages: errors, files, the journal, closed settings, secrets, colours
of pictures.
"""
