"""Tools for authors: a checker of the environment contract, and environments for tests."""

from jaxenvs.testing.checker import check_env as check_env
from jaxenvs.testing.dummy import CountingEnv as CountingEnv
from jaxenvs.testing.dummy import ScriptedEnv as ScriptedEnv
from jaxenvs.testing.probes import PROBES as PROBES
from jaxenvs.testing.probes import DiscountProbe as DiscountProbe
from jaxenvs.testing.probes import ObservationProbe as ObservationProbe
from jaxenvs.testing.probes import PolicyObservationProbe as PolicyObservationProbe
from jaxenvs.testing.probes import PolicyProbe as PolicyProbe
from jaxenvs.testing.probes import Probe as Probe
from jaxenvs.testing.probes import TruncationProbe as TruncationProbe
from jaxenvs.testing.probes import ValueProbe as ValueProbe
