"""The stages: one Prefect flow each, thin (load, call pipeline/, save, record); the only code that
imports prefect and mlflow.
"""

import logging
import os

# Before prefect is imported. Its log repeats what the progress lines and the one-line errors say
# already, with tracebacks.
os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
# A stage that is run alone starts a server of its own, which takes long where the processors are
# busy.
os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "180")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
# It reports at exit, after our own last line, that it is still sending events.
logging.getLogger("EventsWorker").setLevel(logging.ERROR)
# That it makes a database's tables, in front of whatever the first command says.
logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
