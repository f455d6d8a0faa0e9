"""Methods from the paper's comparison (A.13) that the library does not ship. Importing this package
registers the methods; a profile in a checkout can load them as plugins:

    plugins: [lab.rivals.gptswarm, lab.rivals.maao, lab.rivals.bayesian]
"""

from lab.rivals import bayesian, gptswarm, maao  # noqa: F401 (each registers its method)
