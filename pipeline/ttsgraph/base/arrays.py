"""Array types for annotations, in a separate module, so that code that needs no arrays at run time
can import them under TYPE_CHECKING only and doesn't load numpy.
"""

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]
BoolArray = npt.NDArray[np.bool_]
