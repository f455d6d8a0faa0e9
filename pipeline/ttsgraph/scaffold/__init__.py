"""New projects and new entries of profiles: tasks from question files, models from endpoints.
Everything is checked before it is written.
"""
