"""Who collects, who computes gradients, who applies them."""

from jaxenvs.training.schemes.scheme import Scheme as Scheme
from jaxenvs.training.schemes.scheme import central as central
from jaxenvs.training.schemes.scheme import remote as remote
