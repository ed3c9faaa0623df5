"""Wrappers that modify observations, actions, rewards and episodes."""

from jaxenvs.wrappers.action import ClipAction as ClipAction
from jaxenvs.wrappers.action import DiscretizeAction as DiscretizeAction
from jaxenvs.wrappers.action import RescaleAction as RescaleAction
from jaxenvs.wrappers.action import TransformAction as TransformAction
from jaxenvs.wrappers.delay import DelayObservation as DelayObservation
from jaxenvs.wrappers.episode_statistics import RecordEpisodeStatistics as RecordEpisodeStatistics
from jaxenvs.wrappers.frame_stack import FrameStackObservation as FrameStackObservation
from jaxenvs.wrappers.normalize import NormalizeObservation as NormalizeObservation
from jaxenvs.wrappers.normalize import NormalizeReward as NormalizeReward
from jaxenvs.wrappers.pixels import AddRenderObservation as AddRenderObservation
from jaxenvs.wrappers.pixels import GrayscaleObservation as GrayscaleObservation
from jaxenvs.wrappers.pixels import ResizeObservation as ResizeObservation
from jaxenvs.wrappers.repeat_action import RepeatAction as RepeatAction
from jaxenvs.wrappers.reward import ClipReward as ClipReward
from jaxenvs.wrappers.reward import ScaleReward as ScaleReward
from jaxenvs.wrappers.reward import TransformReward as TransformReward
from jaxenvs.wrappers.statistics import RunningStatistics as RunningStatistics
from jaxenvs.wrappers.sticky_action import StickyAction as StickyAction
from jaxenvs.wrappers.time_aware import TimeAwareObservation as TimeAwareObservation
from jaxenvs.wrappers.time_limit import TimeLimit as TimeLimit
from jaxenvs.wrappers.transform import Transform as Transform
from jaxenvs.wrappers.transform_observation import DtypeObservation as DtypeObservation
from jaxenvs.wrappers.transform_observation import FilterObservation as FilterObservation
from jaxenvs.wrappers.transform_observation import FlattenObservation as FlattenObservation
from jaxenvs.wrappers.transform_observation import RescaleObservation as RescaleObservation
from jaxenvs.wrappers.transform_observation import TransformObservation as TransformObservation
