"""Captured graphs: convolutions found with what stands round them, decided, and rewritten."""
