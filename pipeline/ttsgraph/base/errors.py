"""Exceptions raised by ttsgraph. A command ends with exit code 2 for an InputError, with 4 for a
LimitReached, and with 3 for any other TTSGraphError.
"""


class TTSGraphError(Exception):
    """Base of all exceptions that ttsgraph raises on purpose."""


class InputError(TTSGraphError):
    """Unusable input from a user; the message names the expected and the actual input."""


class SettingsError(InputError):
    """Unknown key, wrong type or invalid value in params.yaml or a profile."""


class GraphError(InputError):
    """Invalid collaboration graph: it must be acyclic and have one sink, and its nodes, roles and
    models must be known.
    """


class BudgetError(InputError):
    """Budget that is too small for the cheapest call."""


class DataError(InputError):
    """Source, question file or table that is missing, is unreadable, or fails its checks."""


class EndpointError(InputError):
    """Endpoint that can't be reached or doesn't serve the requested model. The arguments are what
    was found and, if there is one, the remedy.
    """

    def __str__(self) -> str:
        return "; ".join(self.args)


class DeploymentError(InputError):
    """Name (`task@alias`) without a deployed version."""


class CallFailed(TTSGraphError):
    """Model call that failed after all retries: an infrastructure failure, not a wrong answer."""


class FormRefused(CallFailed):
    """Endpoint's refusal of the form of a request (its tools or a schema).

    `said` is the endpoint's reason, in one line without secrets.
    """

    def __init__(self, message: str, said: str) -> None:
        super().__init__(message)
        self.said = said


class NoAnswer(TTSGraphError):
    """Prompt that can never get an answer; not an infrastructure failure."""


class ContextOverflow(NoAnswer):
    """Prompt that is longer than its model's context.

    Its question is scored nevertheless: leaving it out would favour graphs with long prompts.
    """


class PromptRefused(NoAnswer):
    """Refusal of a prompt, or of the answer to it, by a provider's filter or policy.

    Its question is left unscored and doesn't count as answered wrongly.
    """

    @property
    def said(self) -> str:
        """Reason given by the provider, in one line without secrets."""
        return str(self).partition(f"{REFUSED}: ")[2]


REFUSED = "refused by its provider"
"""Text that precedes the provider's reason in the message of a PromptRefused."""


class RunStopped(TTSGraphError):
    """Early end of a run; everything computed so far is kept, and the next start continues."""


class LimitReached(RunStopped):
    """Spending limit reached by a search; with a higher limit, the next start continues."""
