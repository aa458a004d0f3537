"""Folders of raw binaries, as the compiler of onera/standalone-vta writes them: form, reading, writing."""
