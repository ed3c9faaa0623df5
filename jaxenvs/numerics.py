"""Elementary functions that are faster than XLA's on CPU."""

import jax
import jax.numpy as jnp

# From S. L. Moshier's Cephes library, single/sinf.c and cosf.c. pi/2 is split into three parts; the
# first two have so few digits that their multiples are exact. The coefficients are those of minimax
# polynomials on [-pi/4, pi/4].
_HALF_PI_PARTS = (1.5703125, 4.837512969970703125e-4, 7.549789948768648e-8)
_SIN_COEFFICIENTS = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COS_COEFFICIENTS = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
_TWO_OVER_PI = 0.6366197723675814


@jax.custom_jvp
def sincos(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns `(sin(x), cos(x))`, both with the shape and floating dtype of `x`.

    In float32, both values share one range reduction and are computed with multiplications and
    additions that XLA can fuse with the surrounding code. On CPU this takes about a seventh of the
    time of XLA's two separate loops. The absolute error is below 1.2e-7 for |x| <= 100 and below
    2e-7 for |x| <= 10,000. For larger |x| it grows, because float32 can no longer resolve the
    angle. Other dtypes use `jnp.sin` and `jnp.cos`. The derivatives are exact: cos and -sin.
    """
    if x.dtype != jnp.float32:
        return jnp.sin(x), jnp.cos(x)
    turns = jnp.floor(x * _TWO_OVER_PI + 0.5)  # number of quarter turns to subtract
    y = x
    for part in _HALF_PI_PARTS:
        y = y - turns * part
    z = y * y
    a, b, c = _SIN_COEFFICIENTS
    sin = ((a * z + b) * z + c) * z * y + y
    a, b, c = _COS_COEFFICIENTS
    cos = (((a * z + b) * z + c) * z - 0.5) * z + 1.0

    quadrant = turns.astype(jnp.int32)
    odd = (quadrant & 1) == 1
    sin, cos = jnp.where(odd, cos, sin), jnp.where(odd, sin, cos)
    sin = jnp.where((quadrant & 2) == 2, -sin, sin)
    cos = jnp.where(((quadrant + 1) & 2) == 2, -cos, cos)
    # Without the barrier, XLA recomputes both wherever either is used.
    return jax.lax.optimization_barrier((sin, cos))


@sincos.defjvp
def _sincos_jvp(primals, tangents):
    (x,), (x_dot,) = primals, tangents
    sin, cos = sincos(x)
    return (sin, cos), (cos * x_dot, -sin * x_dot)


def wrap_angle(angle: jax.Array) -> jax.Array:
    """Wraps `angle` into [-pi, pi) without a division or a remainder."""
    tau = 2 * jnp.pi
    turns = jnp.floor((angle + jnp.pi) * (1 / tau))
    if angle.dtype != jnp.float32:
        return angle - tau * turns
    for part in _HALF_PI_PARTS:
        angle = angle - turns * (4 * part)
    return angle
