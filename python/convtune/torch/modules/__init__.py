"""Eager models: their layers, what follows each, and the whole with layers swapped."""
