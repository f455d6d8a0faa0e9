"""New projects and new entries of profiles: tasks from files of questions, models from endpoints.
Everything is checked before it is written.
"""
