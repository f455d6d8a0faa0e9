"""The ttsgraph library: graphs, budgets, search and evaluation. Imports no flows, prefect, mlflow
or dvc.
"""
