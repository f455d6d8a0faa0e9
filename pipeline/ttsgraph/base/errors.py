"""The exceptions of ttsgraph. A command ends with exit code 2 for an InputError, with 4 for a
LimitReached, and with 3 for any other TTSGraphError.
"""


class TTSGraphError(Exception):
    """Base of all exceptions that ttsgraph raises on purpose."""


class InputError(TTSGraphError):
    """Input from a person can't be used; the message names the expected and the actual input."""


class SettingsError(InputError):
    """params.yaml or a profile has an unknown key, a wrong type or an impossible value."""


class GraphError(InputError):
    """A collaboration graph breaks a rule: acyclic, one sink, known nodes, roles and models."""


class BudgetError(InputError):
    """A budget that is too small for the cheapest call."""


class DataError(InputError):
    """A source, question file or table is missing, unreadable or fails its checks."""


class EndpointError(InputError):
    """An endpoint can't be reached, or doesn't serve the model that was asked for."""


class DeploymentError(InputError):
    """A name (`task@alias`) without a deployed version."""


class CallFailed(TTSGraphError):
    """A model call failed after all retries: an infrastructure failure, not a wrong answer."""


class FormRefused(CallFailed):
    """An endpoint refuses a request's form (tools, a schema); `said` is its reason, in one safe
    line.
    """

    def __init__(self, message: str, said: str) -> None:
        super().__init__(message)
        self.said = said


class NoAnswer(TTSGraphError):
    """A prompt that never gets an answer. Not an infrastructure failure."""


class ContextOverflow(NoAnswer):
    """A prompt is longer than its model's context. Leaving it unscored would favour graphs with
    long prompts.
    """


class PromptRefused(NoAnswer):
    """A provider's filter or policy refuses a prompt, or the answer to it: unscored, not wrong."""

    @property
    def said(self) -> str:
        """Reason given by the provider, in one line without secrets."""
        return str(self).partition(f"{REFUSED}: ")[2]


REFUSED = "refused by its provider"
"""Text between the request and the provider's reason, in the message of a PromptRefused."""


class RunStopped(TTSGraphError):
    """A run ended early; everything computed so far is kept and the next start continues."""


class LimitReached(RunStopped):
    """A search has reached its spending limit; with a higher limit the next start continues."""
