"""Stages, each a thin Prefect flow (load, call pipeline/, save, record); the only code that imports
prefect and mlflow.
"""

import logging
import os

# Set before prefect is imported. Its log would repeat progress lines and one-line errors with
# tracebacks.
os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
# A stage run by itself starts its own server, which takes long on a busy machine.
os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "180")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
# It would report at exit, after our last line, that it is still sending events.
logging.getLogger("EventsWorker").setLevel(logging.ERROR)
# It would announce the creation of database tables before the first command's output.
logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
