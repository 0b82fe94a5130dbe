"""Models of torchvision, against each other and against a port by hand."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from tests.torchvision_models import torchvision_models
from torch import Tensor, nn

import torchlens as tl

from .pairs import Logs, pair

models: Any = torchvision_models()
IMAGES = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(1))


def noised(model: Any) -> Any:
    """As after training: statistics that are not 0 and 1, gains and biases of their own."""
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.normal_(0, 0.1, generator=generator)
            elif name.endswith("running_var"):
                buffer.uniform_(0.5, 1.5, generator=generator)
        for param in model.parameters():
            spread = 0.1 if param.dim() == 1 else 0.03  # some heads and scales begin as zeros
            param.add_(spread * torch.randn(param.shape, generator=generator))
    return model.eval()


def resnet() -> Any:
    torch.manual_seed(0)
    return noised(models.resnet18(num_classes=10))


class ResNetPort(nn.Module):
    """ResNet-18 by hand, with functions only."""

    def __init__(
        self,
        state: dict[str, Tensor],
        *,
        eps: float = 1e-5,
        eps_at: str = "",
        written_out: bool = True,
        padding: str = "",
    ) -> None:
        super().__init__()
        self.eps, self.eps_at, self.written_out, self.padding = eps, eps_at, written_out, padding
        weights = {
            k.replace(".", "_"): nn.Parameter(v.clone(), requires_grad=False)
            for k, v in state.items()
            if v.is_floating_point()
        }
        self.weights = nn.ParameterDict(weights)

    def norm(self, x: Tensor, name: str) -> Tensor:
        mean, var, gain, bias = (
            self.weights[f"{name}_{of}"] for of in ("running_mean", "running_var", "weight", "bias")
        )
        eps = self.eps if self.eps_at in ("", name) else 1e-5
        if not self.written_out:
            return F.batch_norm(x, mean, var, gain, bias, False, 0.1, eps)
        scale = gain * torch.rsqrt(var + eps)
        return x * scale[None, :, None, None] + (bias - mean * scale)[None, :, None, None]

    def conv(self, x: Tensor, name: str, stride: int, size: int) -> Tensor:
        weight, half = self.weights[f"{name}_weight"], size // 2
        if self.padding == "explicit":
            return F.conv2d(F.pad(x, (half,) * 4), weight, stride=stride)
        if self.padding == "after" and stride == 2 and size == 3:
            return F.conv2d(F.pad(x, (0, 1, 0, 1)), weight, stride=2)
        if self.padding == "reflect" and size == 3:
            return F.conv2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), weight, stride=stride)
        return F.conv2d(x, weight, stride=stride, padding=half)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.conv(x, "conv1", 2, 7), "bn1")), 3, 2, 1)
        for stage in range(1, 5):
            for block in range(2):
                name, stride = f"layer{stage}_{block}_", 2 if stage > 1 and block == 0 else 1
                y = F.relu(self.norm(self.conv(x, f"{name}conv1", stride, 3), f"{name}bn1"))
                y = self.norm(self.conv(y, f"{name}conv2", 1, 3), f"{name}bn2")
                if stride == 2:
                    x = self.norm(self.conv(x, f"{name}downsample_0", 2, 1), f"{name}downsample_1")
                x = F.relu(y + x)
        return F.linear(x.mean((2, 3)), self.weights["fc_weight"], self.weights["fc_bias"])


def resnet_and_port(**wrong: Any) -> Logs:
    model = resnet()
    port = ResNetPort(model.state_dict(), **wrong).eval()
    return tl.log_forward_pass(model, IMAGES), tl.log_forward_pass(port, IMAGES)


def resnet_and_changed(change: Callable[[Any], object], images: Tensor = IMAGES) -> Logs:
    model = resnet()
    changed = copy.deepcopy(model)
    with torch.no_grad():
        change(changed)
    return tl.log_forward_pass(model, IMAGES), tl.log_forward_pass(changed, images)


@pair()
def resnet_and_its_port() -> Logs:
    return resnet_and_port()


@pair()
def resnet_with_padding_as_a_step() -> Logs:
    return resnet_and_port(padding="explicit", written_out=False)


@pair(at="batch_norm add", module="layer2.0.bn2", says="0.001|eps")
def resnet_port_with_other_eps_in_one_norm() -> Logs:
    return resnet_and_port(eps=1e-3, eps_at="layer2_0_bn2")


@pair(at="batch_norm", module="bn1", says="eps is 1e-05 in A and 0.001 in B")
def resnet_port_with_other_eps() -> Logs:
    return resnet_and_port(eps=1e-3, written_out=False)


@pair(at="conv2d", module="layer2.0.conv1", says="pad")
def resnet_port_padded_on_one_side() -> Logs:
    return resnet_and_port(padding="after")


@pair(at="conv2d pad", module="layer1.0.conv1", says="pad")
def resnet_port_padded_by_reflection() -> Logs:
    return resnet_and_port(padding="reflect")


@pair(at="batch_norm", module="bn1", says="training")
def resnet_in_training_mode() -> Logs:
    return resnet_and_changed(lambda model: model.train())


@pair(at="batch_norm buffer", module="layer2.1.bn1", says="buffers differ")
def resnet_with_statistics_not_loaded() -> Logs:
    return resnet_and_changed(lambda model: model.layer2[1].bn1.reset_running_stats())


@pair()
def resnet_with_channels_last() -> Logs:
    last = torch.channels_last
    return resnet_and_changed(lambda model: model.to(memory_format=last), IMAGES.to(memory_format=last))


@pair(at="input", says="the inputs differ: B's is 4.545 times A's")
def resnet_with_scaled_images() -> Logs:
    return resnet_and_changed(lambda model: None, (IMAGES - 0.45) / 0.22)


@pair(at="input", says="the inputs differ: the same numbers, dimension 1 reversed")
def resnet_with_channels_reversed() -> Logs:
    return resnet_and_changed(lambda model: None, IMAGES.flip(1).contiguous())


# ---- channels last by hand ------------------------------------------------------------------------------------------


class First(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.wide, self.deep, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 1), nn.Linear(16 * 64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.max_pool2d(F.relu(self.deep(F.relu(self.wide(x)))), 2).flatten(1))  # type: ignore[no-any-return]


class Last(nn.Module):
    """The same on images whose channels come last; the 1x1 convolution is a linear layer."""

    def __init__(self, first: First, forgetful: bool) -> None:
        super().__init__()
        self.first, self.forgetful = first, forgetful

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.first.wide(x.permute(0, 3, 1, 2))).permute(0, 2, 3, 1)
        x = F.relu(F.linear(x, self.first.deep.weight[:, :, 0, 0], self.first.deep.bias))
        x = x.reshape(1, 8, 2, 8, 2, 16).amax((2, 4))
        x = x if self.forgetful else x.permute(0, 3, 1, 2)
        return self.first.head(x.reshape(1, -1))  # type: ignore[no-any-return]


def first_and_last(forgetful: bool) -> Logs:
    model, images = First(), IMAGES[..., :16, :16].contiguous()
    last = Last(model, forgetful)
    return tl.log_forward_pass(model, images), tl.log_forward_pass(last, images.permute(0, 2, 3, 1).contiguous())


@pair()
def channels_first_and_last() -> Logs:
    return first_and_last(False)


@pair(at="reshape flatten view", says="order")
def channels_last_flattened_as_they_lie() -> Logs:
    return first_and_last(True)


# ---- further ones ---------------------------------------------------------------------------------------------------


def vision_transformer(**settings: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"image_size": 64, "patch_size": 16, "num_layers": 2, "num_heads": 4, "hidden_dim": 32, "mlp_dim": 64}
    return noised(models.VisionTransformer(**sizes, num_classes=10, **settings))


@pair(at="layer_norm", module="encoder_layer_0.ln_1", says="eps is 1e-06 in A and 1e-05 in B")
def vision_transformer_with_other_eps() -> Logs:
    nets = vision_transformer(), vision_transformer(norm_layer=nn.LayerNorm)
    return tl.log_forward_pass(nets[0], IMAGES), tl.log_forward_pass(nets[1], IMAGES)


@pair(at="add", says="different operands|constants differ|weights")
def vision_transformer_with_places_not_loaded() -> Logs:
    changed = vision_transformer()
    with torch.no_grad():
        changed.encoder.pos_embedding.zero_()
    return tl.log_forward_pass(vision_transformer(), IMAGES), tl.log_forward_pass(changed, IMAGES)


@pair(at="hardswish silu", says="different functions")
def mobilenet_with_another_activation() -> Logs:
    nets = []
    for replaced in (False, True):
        torch.manual_seed(0)
        net = noised(models.mobilenet_v3_small(num_classes=10))
        if replaced:
            net.features[0][2] = nn.SiLU()
        nets.append(tl.log_forward_pass(net, IMAGES))
    return nets[0], nets[1]


@pair(at="mul", module="features.1.1", says="weights|layer_scale")
def convnext_with_a_scale_not_loaded() -> Logs:
    nets = []
    for forgotten in (False, True):
        torch.manual_seed(0)
        block_setting = [models.convnext.CNBlockConfig(16, 24, 2), models.convnext.CNBlockConfig(24, None, 1)]
        net = noised(models.ConvNeXt(block_setting, num_classes=10))
        if forgotten:
            net.features[1][1].layer_scale.data.fill_(1e-6)
        nets.append(tl.log_forward_pass(net, IMAGES))
    return nets[0], nets[1]
