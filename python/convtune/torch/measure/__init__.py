"""Proof that a candidate is as right as PyTorch, and faster: checks, timing, contests and what is kept of them."""
