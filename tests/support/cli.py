"""Commands of ttsgraph, run in this process."""

from typer.testing import CliRunner, Result

from ttsgraph.cli import app

PRICES = ("--price", "1,2")


def ended(*arguments: str) -> Result:
    """Run a command; return how it ended."""
    return CliRunner().invoke(app, list(arguments))


def done(*arguments: str) -> str:
    """Run a command that has to succeed; return its output."""
    result = ended(*arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output
