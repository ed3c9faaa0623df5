"""Distribution of collection, gradients and updates over programs, workers and devices."""

from jaxenvs.training.schemes.scheme import Scheme as Scheme
from jaxenvs.training.schemes.scheme import central as central
from jaxenvs.training.schemes.scheme import remote as remote
