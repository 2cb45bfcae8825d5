def packed_weights(kept: dict, layer: nn.Module, pack) -> torch.Tensor:
    """The weights of a layer as pack() makes them, kept until they change: another tensor, other memory, or written to (but
    by .data, which hides it)."""
    weights = [t for t in (layer.weight, layer.bias) if t is not None]
    state = [(id(t), t.data_ptr(), object() if t.is_inference() else t._version) for t in weights]
    if kept.get('state') != state:
        kept.update(packed=pack(layer.weight, layer.bias), weights=weights, state=state)
    return kept['packed']


