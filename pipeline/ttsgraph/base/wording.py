"""Wording of counts and errors in messages."""


def counted(count: int, what: str) -> str:
    """Return a count with its noun, such as "1 node" or "2 nodes"."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the error's type if there is no message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
