"""The models that torch_models.py measures, with random weights, and the inputs of one forward. torchvision's by their
names there; U-Net's, DCGAN's and CycleGAN's of torch_generators.py; YOLO11 needs the wheel of ultralytics, Stable Diffusion's and FLUX's parts and the decoders of video that of diffusers."""

# The batch; images are of --size (224) but where the name says another.
MODELS = {
    "resnet50": 64, "resnet18": 64, "efficientnet_b0": 64, "vgg16": 32, "convnext_tiny": 64, "mobilenet_v3_large": 64,
    "regnet_y_16gf": 64, "resnext50_32x4d": 64, "yolo11s": 16, "sd_vae": 2, "sd_unet": 2, "flux_vae": 1,
    "unet": 4, "dcgan": 64, "cyclegan": 1, "wan": 1, "hunyuan": 1, "ltx": 1,
}  # fmt: skip


def _module(parts, forward):
    import torch

    class Whole(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = torch.nn.ModuleList(parts)

        def forward(self, *inputs):
            return forward(*self.parts, *inputs)

    return Whole()


def _decoder(latents, **more):
    """Builds an autoencoder by diffusers; `more`: of its configuration."""
    from diffusers import AutoencoderKL

    same = {"down_block_types": ("DownEncoderBlock2D",) * 4, "up_block_types": ("UpDecoderBlock2D",) * 4,
            "block_out_channels": (128, 256, 512, 512), "layers_per_block": 2, "norm_num_groups": 32}  # fmt: skip
    whole = AutoencoderKL(in_channels=3, out_channels=3, latent_channels=latents, **same, **more)
    parts = [one for one in (whole.post_quant_conv, whole.decoder) if one is not None]
    return _module(parts, lambda *them: them[1](them[0](them[2])) if len(them) == 3 else them[0](them[1]))


def _unet():
    """Stable Diffusion 1.5's."""
    from diffusers import UNet2DConditionModel

    unet = UNet2DConditionModel(sample_size=64, cross_attention_dim=768, attention_head_dim=8)
    return _module([unet], lambda unet, *inputs: unet(*inputs, return_dict=False)[0])


def _video(name, normal, size):
    """A video autoencoder's way from latents to frames. For Wan, torch.compile is given what each latent frame passes."""
    import diffusers
    import torch

    kind, channels, *latents = {
        "wan": ("AutoencoderKLWan", 16, 5, 60, 104), "hunyuan": ("AutoencoderKLHunyuanVideo", 16, 5, 40, 64),
        "ltx": ("AutoencoderKLLTXVideo", 128, 5, 16, 24)}[name]  # fmt: skip
    small = size < 224  # to see that it works
    blocks = {"wan": {"base_dim": 32, "num_res_blocks": 1}, "hunyuan": {"block_out_channels": (32, 32, 64, 64)},
              "ltx": {"decoder_block_out_channels": (16, 32, 32, 32)}}[name]  # fmt: skip
    vae = getattr(diffusers, kind)(**blocks if small else {})
    vae.encoder = torch.nn.Identity()
    model = _module([vae], lambda vae, z: vae.decode(z, return_dict=False)[0])
    frames, *image = latents
    if small:
        image = 8, 8
    if name == "wan":
        model.part, model.longer = (vae, "decoder"), (normal(channels, 4 if small else 21, *image),)
    return model, (normal(channels, 3 if small else frames, *image),)


def yolo(name, whole=False):
    """ultralytics' model, of whose outputs the first is given where not `whole`."""
    from ultralytics.nn.tasks import DetectionModel

    model = DetectionModel(f"{name}.yaml", verbose=False)
    return model if whole else _module([model], lambda model, x: model(x)[0])


def model_of(name, batch, size, device):
    """(the model in float32, its inputs)."""
    import torch

    def normal(*shape):
        return torch.randn(batch, *shape, device=device)

    with torch.device(device):
        if name == "yolo11s":
            return yolo(name), (normal(3, 640, 640),)
        if name == "sd_vae":  # to 512 x 512
            return _decoder(4), (normal(4, 64, 64),)
        if name == "flux_vae":  # to 1024 x 1024
            return _decoder(16, use_quant_conv=False, use_post_quant_conv=False), (normal(16, 128, 128),)
        if name == "sd_unet":  # for 512 x 512
            return _unet(), (normal(4, 64, 64), torch.tensor(500), normal(77, 768))
        if name in ("wan", "hunyuan", "ltx"):
            return _video(name, normal, size)
        if name in ("unet", "dcgan", "cyclegan"):
            import torch_generators

            if name == "dcgan":
                return torch_generators.dcgan(), (normal(100, 1, 1),)
            size = {"unet": 2 * size + 64, "cyclegan": size + 32}[name]
            return {"unet": torch_generators.UNet, "cyclegan": torch_generators.cyclegan}[name](), (normal(3, size, size),)
        import torchvision

        return torchvision.models.get_model(name, weights=None), (normal(3, size, size),)
