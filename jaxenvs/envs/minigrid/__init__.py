"""MiniGrid: grids of rooms with doors, keys, balls, and boxes, which the agent sees in part.

Source: M. Chevalier-Boisvert et al., Minigrid & Miniworld: Modular & Customizable Reinforcement
Learning Environments for Goal-Oriented Tasks, 2023. Rules, observations, and distributions of
levels are those of the package `minigrid` (tests/parity/test_certificates.py).
"""

from jaxenvs.envs.minigrid.crossing import Crossing as Crossing
from jaxenvs.envs.minigrid.dist_shift import DistShift as DistShift
from jaxenvs.envs.minigrid.door_key import DoorKey as DoorKey
from jaxenvs.envs.minigrid.dynamic_obstacles import DynamicObstacles as DynamicObstacles
from jaxenvs.envs.minigrid.empty import Empty as Empty
from jaxenvs.envs.minigrid.fetch import Fetch as Fetch
from jaxenvs.envs.minigrid.four_rooms import FourRooms as FourRooms
from jaxenvs.envs.minigrid.go_to_door import GoToDoor as GoToDoor
from jaxenvs.envs.minigrid.go_to_object import GoToObject as GoToObject
from jaxenvs.envs.minigrid.key_corridor import KeyCorridor as KeyCorridor
from jaxenvs.envs.minigrid.lava_gap import LavaGap as LavaGap
from jaxenvs.envs.minigrid.layout import RandomStream as RandomStream
from jaxenvs.envs.minigrid.level import MiniGrid as MiniGrid
from jaxenvs.envs.minigrid.level import MiniGridState as MiniGridState
from jaxenvs.envs.minigrid.level import SquareGrid as SquareGrid
from jaxenvs.envs.minigrid.locked_room import LockedRoom as LockedRoom
from jaxenvs.envs.minigrid.maze import Maze as Maze
from jaxenvs.envs.minigrid.maze import MazeLevel as MazeLevel
from jaxenvs.envs.minigrid.memory import Memory as Memory
from jaxenvs.envs.minigrid.missions import decode_mission as decode_mission
from jaxenvs.envs.minigrid.multi_room import MultiRoom as MultiRoom
from jaxenvs.envs.minigrid.obstructed_maze import ObstructedMaze as ObstructedMaze
from jaxenvs.envs.minigrid.obstructed_maze import ObstructedMazeDoor as ObstructedMazeDoor
from jaxenvs.envs.minigrid.playground import Playground as Playground
from jaxenvs.envs.minigrid.put_near import PutNear as PutNear
from jaxenvs.envs.minigrid.red_blue_doors import RedBlueDoors as RedBlueDoors
from jaxenvs.envs.minigrid.room_grid import RoomGrid as RoomGrid
from jaxenvs.envs.minigrid.room_grid import Rooms as Rooms
from jaxenvs.envs.minigrid.unlock import BlockedUnlockPickup as BlockedUnlockPickup
from jaxenvs.envs.minigrid.unlock import Unlock as Unlock
from jaxenvs.envs.minigrid.unlock import UnlockPickup as UnlockPickup
