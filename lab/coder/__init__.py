"""Recording of the answers of the models in profile `coder`, so that searches over the answers need
no model.
"""
