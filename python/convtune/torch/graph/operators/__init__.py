"""The surroundings of convolutions in a captured graph: norms, pools, products of matrices, copies that go."""
