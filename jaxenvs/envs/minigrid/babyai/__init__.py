"""BabyAI: levels of MiniGrid with instructions in a small part of English.

Source: M. Chevalier-Boisvert et al., BabyAI: A Platform to Study the Sample Efficiency of Grounded
Language Learning, 2019, as in the package `minigrid` (tests/parity/test_certificates.py).
"""

from jaxenvs.envs.minigrid.babyai.go_to import GoTo as GoTo
from jaxenvs.envs.minigrid.babyai.go_to import GoToDoor as GoToDoor
from jaxenvs.envs.minigrid.babyai.go_to import GoToImpUnlock as GoToImpUnlock
from jaxenvs.envs.minigrid.babyai.go_to import GoToLocal as GoToLocal
from jaxenvs.envs.minigrid.babyai.go_to import GoToObj as GoToObj
from jaxenvs.envs.minigrid.babyai.go_to import GoToObjDoor as GoToObjDoor
from jaxenvs.envs.minigrid.babyai.go_to import GoToRedBall as GoToRedBall
from jaxenvs.envs.minigrid.babyai.go_to import GoToRedBallGrey as GoToRedBallGrey
from jaxenvs.envs.minigrid.babyai.go_to import GoToRedBlueBall as GoToRedBlueBall
from jaxenvs.envs.minigrid.babyai.go_to import GoToSeq as GoToSeq
from jaxenvs.envs.minigrid.babyai.level import BabyAILevel as BabyAILevel
from jaxenvs.envs.minigrid.babyai.level_gen import LevelGen as LevelGen
from jaxenvs.envs.minigrid.babyai.open import Open as Open
from jaxenvs.envs.minigrid.babyai.open import OpenDoor as OpenDoor
from jaxenvs.envs.minigrid.babyai.open import OpenDoorsOrder as OpenDoorsOrder
from jaxenvs.envs.minigrid.babyai.open import OpenRedDoor as OpenRedDoor
from jaxenvs.envs.minigrid.babyai.open import OpenTwoDoors as OpenTwoDoors
from jaxenvs.envs.minigrid.babyai.other import ActionObjDoor as ActionObjDoor
from jaxenvs.envs.minigrid.babyai.other import FindObjS5 as FindObjS5
from jaxenvs.envs.minigrid.babyai.other import KeyCorridor as KeyCorridor
from jaxenvs.envs.minigrid.babyai.other import MoveTwoAcross as MoveTwoAcross
from jaxenvs.envs.minigrid.babyai.other import OneRoomS8 as OneRoomS8
from jaxenvs.envs.minigrid.babyai.pickup import Pickup as Pickup
from jaxenvs.envs.minigrid.babyai.pickup import PickupAbove as PickupAbove
from jaxenvs.envs.minigrid.babyai.pickup import PickupDist as PickupDist
from jaxenvs.envs.minigrid.babyai.pickup import PickupLoc as PickupLoc
from jaxenvs.envs.minigrid.babyai.pickup import UnblockPickup as UnblockPickup
from jaxenvs.envs.minigrid.babyai.put_next import PutNext as PutNext
from jaxenvs.envs.minigrid.babyai.put_next import PutNextLocal as PutNextLocal
from jaxenvs.envs.minigrid.babyai.synth import BossLevel as BossLevel
from jaxenvs.envs.minigrid.babyai.synth import BossLevelNoUnlock as BossLevelNoUnlock
from jaxenvs.envs.minigrid.babyai.synth import MiniBossLevel as MiniBossLevel
from jaxenvs.envs.minigrid.babyai.synth import Synth as Synth
from jaxenvs.envs.minigrid.babyai.synth import SynthLoc as SynthLoc
from jaxenvs.envs.minigrid.babyai.synth import SynthSeq as SynthSeq
from jaxenvs.envs.minigrid.babyai.unlock import BlockedUnlockPickup as BlockedUnlockPickup
from jaxenvs.envs.minigrid.babyai.unlock import KeyInBox as KeyInBox
from jaxenvs.envs.minigrid.babyai.unlock import Unlock as Unlock
from jaxenvs.envs.minigrid.babyai.unlock import UnlockLocal as UnlockLocal
from jaxenvs.envs.minigrid.babyai.unlock import UnlockPickup as UnlockPickup
from jaxenvs.envs.minigrid.babyai.unlock import UnlockToUnlock as UnlockToUnlock
