"""The surroundings of convolutions in a captured graph: norms, pools, gates, products of matrices, copies that go."""
