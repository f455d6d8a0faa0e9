"""New entries of a profile: a task from a file of questions, a model from an endpoint; checked,
then written.
"""
