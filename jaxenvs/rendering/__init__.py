"""Images and video: a rasterizer in pure JAX, plots, video files and a window."""
