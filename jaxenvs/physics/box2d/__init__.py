"""Box2D's rigid-body engine, as pure functions of a state."""
