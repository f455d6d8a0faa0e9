"""Every method is held to what the contract says, those of the laboratory too."""

import lab.rivals  # noqa: F401 (registers them)
