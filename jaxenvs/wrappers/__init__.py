"""Environments around environments."""

from jaxenvs.wrappers.delay import DelayObservation as DelayObservation
from jaxenvs.wrappers.flatten import FlattenObservation as FlattenObservation
from jaxenvs.wrappers.frame_stack import FrameStackObservation as FrameStackObservation
from jaxenvs.wrappers.pixels import AddRenderObservation as AddRenderObservation
from jaxenvs.wrappers.pixels import GrayscaleObservation as GrayscaleObservation
from jaxenvs.wrappers.pixels import ResizeObservation as ResizeObservation
from jaxenvs.wrappers.time_aware import TimeAwareObservation as TimeAwareObservation
from jaxenvs.wrappers.time_limit import TimeLimit as TimeLimit
from jaxenvs.wrappers.transform import Transform as Transform
from jaxenvs.wrappers.transform_observation import DtypeObservation as DtypeObservation
from jaxenvs.wrappers.transform_observation import FilterObservation as FilterObservation
from jaxenvs.wrappers.transform_observation import RescaleObservation as RescaleObservation
from jaxenvs.wrappers.transform_observation import TransformObservation as TransformObservation
