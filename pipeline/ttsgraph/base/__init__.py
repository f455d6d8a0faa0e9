"""What everything stands on: errors, files, the journal, closed settings, secrets, the colours of
pictures.
"""
