"""A collision of Warp's that equals that of C MuJoCo. Warp reads the source of this file."""
# pyright: reportInvalidTypeForm=false

from mujoco.mjx.third_party.mujoco_warp._src.collision_primitive_core import mat23f, plane_sphere
from mujoco.mjx.warp import warp as wp


@wp.func
def plane_capsule(
    plane_normal: wp.vec3,
    plane_pos: wp.vec3,
    capsule_pos: wp.vec3,
    capsule_axis: wp.vec3,
    capsule_radius: float,
    capsule_half_length: float,
):
    """Returns the distances, the positions, and the frame of the contacts at both ends.

    Warp's own takes another tangent where the capsule stands steeply on the plane.
    """
    n = plane_normal
    b = capsule_axis - n * wp.dot(n, capsule_axis)
    length = wp.length(b)
    b = wp.where(length < 1e-15, wp.vec3(1.0, 0.0, 0.0), b / length)
    c = wp.cross(n, b)
    frame = wp.mat33(n[0], n[1], n[2], b[0], b[1], b[2], c[0], c[1], c[2])
    segment = capsule_axis * capsule_half_length
    dist1, pos1 = plane_sphere(n, plane_pos, capsule_pos + segment, capsule_radius)
    dist2, pos2 = plane_sphere(n, plane_pos, capsule_pos - segment, capsule_radius)
    dist = wp.vec2(dist1, dist2)
    pos = mat23f(pos1[0], pos1[1], pos1[2], pos2[0], pos2[1], pos2[2])
    return dist, pos, frame
