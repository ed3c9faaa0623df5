"""Pictures: a rasteriser in pure JAX, and writers of video files."""
