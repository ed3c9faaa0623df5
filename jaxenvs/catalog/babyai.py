"""The ids of BabyAI's levels, under minigrid's names.

The time limit is None if it depends on the mission.
"""

from typing import Any

from jaxenvs.registry import register


def _register(name: str, entry_point: str, time_limit: int | None, **kwargs: Any) -> None:
    register(
        f"BabyAI-{name}" if name[-3:-1] == "-v" else f"BabyAI-{name}-v0",
        f"jaxenvs.envs.minigrid.babyai.{entry_point}",
        family="babyai",
        time_limit=time_limit,
        source="M. Chevalier-Boisvert et al., 2019",
        compared_with="minigrid",
        kwargs=kwargs,
    )


_register("GoToRedBallGrey", "go_to:GoToRedBallGrey", 64)
_register("GoToRedBall", "go_to:GoToRedBall", 64)
_register("GoToRedBallNoDists", "go_to:GoToRedBall", 64, num_dists=0)
_register("GoToObj", "go_to:GoToObj", 64)
_register("GoToObjS4", "go_to:GoToObj", 16, room_size=4)
_register("GoToObjS6-v1", "go_to:GoToObj", 36, room_size=6)
_register("GoToLocal", "go_to:GoToLocal", 64)
_register("GoToLocalS5N2", "go_to:GoToLocal", 25, room_size=5, num_dists=2)
_register("GoToLocalS6N2", "go_to:GoToLocal", 36, room_size=6, num_dists=2)
_register("GoToLocalS6N3", "go_to:GoToLocal", 36, room_size=6, num_dists=3)
_register("GoToLocalS6N4", "go_to:GoToLocal", 36, room_size=6, num_dists=4)
_register("GoToLocalS7N4", "go_to:GoToLocal", 49, room_size=7, num_dists=4)
_register("GoToLocalS7N5", "go_to:GoToLocal", 49, room_size=7, num_dists=5)
_register("GoToLocalS8N2", "go_to:GoToLocal", 64, num_dists=2)
_register("GoToLocalS8N3", "go_to:GoToLocal", 64, num_dists=3)
_register("GoToLocalS8N4", "go_to:GoToLocal", 64, num_dists=4)
_register("GoToLocalS8N5", "go_to:GoToLocal", 64, num_dists=5)
_register("GoToLocalS8N6", "go_to:GoToLocal", 64, num_dists=6)
_register("GoToLocalS8N7", "go_to:GoToLocal", 64, num_dists=7)
_register("GoTo", "go_to:GoTo", 576)
_register("GoToOpen", "go_to:GoTo", 576, doors_open=True)
_register("GoToObjMaze", "go_to:GoTo", 576, num_dists=1)
_register("GoToObjMazeOpen", "go_to:GoTo", 576, num_dists=1, doors_open=True)
_register("GoToObjMazeS4R2", "go_to:GoTo", 64, num_dists=1, room_size=4, num_rows=2, num_cols=2)
_register("GoToObjMazeS4", "go_to:GoTo", 144, num_dists=1, room_size=4)
_register("GoToObjMazeS5", "go_to:GoTo", 225, num_dists=1, room_size=5)
_register("GoToObjMazeS6", "go_to:GoTo", 324, num_dists=1, room_size=6)
_register("GoToObjMazeS7", "go_to:GoTo", 441, num_dists=1, room_size=7)
_register("GoToImpUnlock", "go_to:GoToImpUnlock", 576)
_register("GoToSeq", "go_to:GoToSeq", None)
_register("GoToSeqS5R2", "go_to:GoToSeq", None, room_size=5, num_rows=2, num_cols=2, num_dists=4)
_register("GoToRedBlueBall", "go_to:GoToRedBlueBall", 64)
_register("GoToDoor", "go_to:GoToDoor", 441)
_register("GoToObjDoor", "go_to:GoToObjDoor", 576)
_register("Open", "open:Open", 576)
_register("OpenRedDoor", "open:OpenRedDoor", 50)
_register("OpenDoor", "open:OpenDoor", 576)
_register("OpenDoorDebug", "open:OpenDoor", 576, debug=True)
_register("OpenDoorColor", "open:OpenDoor", 576, select_by="color")
_register("OpenDoorLoc", "open:OpenDoor", 576, select_by="loc")
_register("OpenTwoDoors", "open:OpenTwoDoors", 720)
_register("OpenRedBlueDoors", "open:OpenTwoDoors", 720, first_color="red", second_color="blue")
_register(
    "OpenRedBlueDoorsDebug",
    "open:OpenTwoDoors",
    720,
    first_color="red",
    second_color="blue",
    strict=True,
)
_register("OpenDoorsOrderN2", "open:OpenDoorsOrder", 720)
_register("OpenDoorsOrderN4", "open:OpenDoorsOrder", 720, num_doors=4)
_register("OpenDoorsOrderN2Debug", "open:OpenDoorsOrder", 720, debug=True)
_register("OpenDoorsOrderN4Debug", "open:OpenDoorsOrder", 720, debug=True, num_doors=4)
_register("Pickup", "pickup:Pickup", 576)
_register("UnblockPickup", "pickup:UnblockPickup", 576)
_register("PickupLoc", "pickup:PickupLoc", 64)
_register("PickupDist", "pickup:PickupDist", 49)
_register("PickupDistDebug", "pickup:PickupDist", 49, debug=True)
_register("PickupAbove", "pickup:PickupAbove", 288)
_register("PutNextLocal", "put_next:PutNextLocal", 128)
_register("PutNextLocalS5N3", "put_next:PutNextLocal", 50, room_size=5, num_objs=3)
_register("PutNextLocalS6N4", "put_next:PutNextLocal", 72, room_size=6, num_objs=4)
_register("PutNextS4N1", "put_next:PutNext", 128)
_register("PutNextS5N2", "put_next:PutNext", 200, room_size=5, objs_per_room=2)
_register("PutNextS5N1", "put_next:PutNext", 200, room_size=5)
_register("PutNextS6N3", "put_next:PutNext", 288, room_size=6, objs_per_room=3)
_register("PutNextS7N4", "put_next:PutNext", 392, room_size=7, objs_per_room=4)
_register(
    "PutNextS5N2Carrying",
    "put_next:PutNext",
    200,
    room_size=5,
    objs_per_room=2,
    start_carrying=True,
)
_register(
    "PutNextS6N3Carrying",
    "put_next:PutNext",
    288,
    room_size=6,
    objs_per_room=3,
    start_carrying=True,
)
_register(
    "PutNextS7N4Carrying",
    "put_next:PutNext",
    392,
    room_size=7,
    objs_per_room=4,
    start_carrying=True,
)
_register("Unlock", "unlock:Unlock", 576)
_register("UnlockLocal", "unlock:UnlockLocal", 576)
_register("UnlockLocalDist", "unlock:UnlockLocal", 576, distractors=True)
_register("KeyInBox", "unlock:KeyInBox", 576)
_register("UnlockPickup", "unlock:UnlockPickup", 72)
_register("UnlockPickupDist", "unlock:UnlockPickup", 72, distractors=True)
_register("BlockedUnlockPickup", "unlock:BlockedUnlockPickup", 576)
_register("UnlockToUnlock", "unlock:UnlockToUnlock", 1080)
_register("ActionObjDoor", "other:ActionObjDoor", 441)
_register("FindObjS5", "other:FindObjS5", 500)
_register("FindObjS6", "other:FindObjS5", 720, room_size=6)
_register("FindObjS7", "other:FindObjS5", 980, room_size=7)
_register("KeyCorridor", "other:KeyCorridor", 1080)
_register("KeyCorridorS3R1", "other:KeyCorridor", 270, room_size=3, num_rows=1)
_register("KeyCorridorS3R2", "other:KeyCorridor", 270, room_size=3, num_rows=2)
_register("KeyCorridorS3R3", "other:KeyCorridor", 270, room_size=3)
_register("KeyCorridorS4R3", "other:KeyCorridor", 480, room_size=4)
_register("KeyCorridorS5R3", "other:KeyCorridor", 750, room_size=5)
_register("KeyCorridorS6R3", "other:KeyCorridor", 1080)
_register("OneRoomS8", "other:OneRoomS8", 64)
_register("OneRoomS12", "other:OneRoomS8", 144, room_size=12)
_register("OneRoomS16", "other:OneRoomS8", 256, room_size=16)
_register("OneRoomS20", "other:OneRoomS8", 400, room_size=20)
_register("MoveTwoAcrossS5N2", "other:MoveTwoAcross", 400)
_register("MoveTwoAcrossS8N9", "other:MoveTwoAcross", 1024, room_size=8, objs_per_room=9)
_register("Synth", "synth:Synth", None)
_register("SynthS5R2", "synth:Synth", None, room_size=5, num_rows=2)
_register("SynthLoc", "synth:SynthLoc", None)
_register("SynthSeq", "synth:SynthSeq", None)
_register("MiniBossLevel", "synth:MiniBossLevel", None)
_register("BossLevel", "synth:BossLevel", None)
_register("BossLevelNoUnlock", "synth:BossLevelNoUnlock", None)
