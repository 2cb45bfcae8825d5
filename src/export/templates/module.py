class @MODULE@(nn.Module):
    def __init__(self@PARAMETERS@) -> None:
        super().__init__()
@LAYERS@@KEPT@
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not x.is_cuda:
            return @FALLBACK@
@FORWARD@