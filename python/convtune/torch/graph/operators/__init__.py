"""What surrounds convolutions in a captured graph: norms, pools, gates, products of matrices, and what goes without a trace."""
