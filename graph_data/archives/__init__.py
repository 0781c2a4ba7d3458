"""Graphs in the files that researchers publish them in: a file a format, recognised by ``formats``."""
