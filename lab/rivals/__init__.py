"""Methods of the paper's comparison (A.13) that the library does not ship; importing this registers
them. A profile of a checkout has them by name:

    plugins: [lab.rivals.gptswarm, lab.rivals.maao, lab.rivals.bayesian]
"""

from lab.rivals import bayesian, gptswarm, maao  # noqa: F401 (each registers its method)
