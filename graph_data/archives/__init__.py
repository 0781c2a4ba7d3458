"""Formats in which researchers publish graphs: one file each, recognised by ``formats``."""
