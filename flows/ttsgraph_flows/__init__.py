"""Stages as thin Prefect flows, which load inputs, call pipeline/, and save and record results. No
other package imports prefect or mlflow.
"""

import logging
import os

# Set before prefect is imported. Prefect's log would repeat our progress lines, and add tracebacks
# to our one-line errors.
os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
# A stage run by itself starts its own server, which can take minutes on a busy machine.
os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "180")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
# This logger would report at exit, after our last line, that events are still being sent.
logging.getLogger("EventsWorker").setLevel(logging.ERROR)
# This logger would announce the creation of database tables before the first command's output.
logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
