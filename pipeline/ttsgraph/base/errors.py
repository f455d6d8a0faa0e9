"""The exceptions of ttsgraph. A command ends with exit code 2 for an InputError, with 4 for a
LimitReached, and with 3 for another TTSGraphError.
"""


class TTSGraphError(Exception):
    """Base of everything ttsgraph raises on purpose."""


class InputError(TTSGraphError):
    """Something a person gave can't be used; the message says what was expected and what came."""


class SettingsError(InputError):
    """params.yaml or a profile has an unknown key, a wrong type or an impossible value."""


class GraphError(InputError):
    """A collaboration graph breaks a rule: acyclic, one sink, known nodes, roles and models."""


class BudgetError(InputError):
    """A budget in which not even the smallest call fits."""


class DataError(InputError):
    """A source, question file or table is missing, unreadable or fails its checks."""


class EndpointError(InputError):
    """An endpoint can't be reached, or doesn't serve the model that was asked for."""


class DeploymentError(InputError):
    """A name (`task@alias`) under which nothing is deployed."""


class CallFailed(TTSGraphError):
    """A model call failed after all retries. Infrastructure, not a wrong answer."""


class FormRefused(CallFailed):
    """An endpoint refuses a request's form (tools, a schema); `said` is why, in one safe line."""

    def __init__(self, message: str, said: str) -> None:
        super().__init__(message)
        self.said = said


class NoAnswer(TTSGraphError):
    """A prompt that gets no answer however often it is asked. Not infrastructure."""


class ContextOverflow(NoAnswer):
    """A prompt is longer than its model's context. Left unscored it would favour graphs with long
    prompts.
    """


class PromptRefused(NoAnswer):
    """A provider's filter or policy refuses a prompt, or the answer to it: lost, never wrong."""

    @property
    def said(self) -> str:
        """The provider's words, in one line without secrets."""
        return str(self).partition(f"{REFUSED}: ")[2]


REFUSED = "refused by its provider"
"""Between what was asked and the provider's words, in the message of a PromptRefused."""


class RunStopped(TTSGraphError):
    """A run ended early; everything computed so far is kept and the next start continues."""


class LimitReached(RunStopped):
    """A search has spent all it may; with a higher limit the next start continues."""
