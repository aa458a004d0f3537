"""The custom function unit: buffers, systolic array, post-processing, and the seam to the CPU."""
