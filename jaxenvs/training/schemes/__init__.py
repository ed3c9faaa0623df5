"""Where experience is collected, and where gradients are computed and applied."""

from jaxenvs.training.schemes.scheme import Scheme as Scheme
from jaxenvs.training.schemes.scheme import central as central
from jaxenvs.training.schemes.scheme import remote as remote
