"""Planes: fetch from the source and produce to the target, within a lane's transaction."""
