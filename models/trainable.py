"""Trainable parameters of the shot encoder and shot decoder in each phase of training.

Each function freezes its networks and unfreezes the parameters of its phase. At full size these are 17,973,248
parameters in the warm-up, 402,050,048 in joint training and 385,323,008 in adaptation. The published lists add an
unused LayerNorm of 3,840 parameters to the first two.

Without a motion scope (the ablation) its embedding stays frozen: it would get no gradient.

Most of these parameters are the adaLN of the blocks, trained in full; the adapters have 29,491,200. The baseline GC
trains the parameters of the adaptation too, without a motion scope.
"""

from __future__ import annotations

from diffusers import CogVideoXTransformer3DModel
from torch import nn

from models.shot_decoder import ShotDecoder, is_motion, is_own
from models.shot_encoder import ShotEncoder


def for_warm_up(encoder: ShotEncoder, decoder: ShotDecoder, *, motion_scope: bool = True) -> list[nn.Parameter]:
    """Warm-up: the shot encoder and the shot decoder's motion scope embedding."""
    decoder.requires_grad_(False)
    motion = [parameter for name, parameter in decoder.named_parameters() if is_motion(name)]
    return _thaw([*encoder.parameters(), *(motion if motion_scope else [])])


def for_joint(
    encoder: ShotEncoder, decoder: ShotDecoder, *, whole: bool = False, motion_scope: bool = True
) -> list[nn.Parameter]:
    """Joint training: the shot encoder and the parameters of `for_adaptation`. Same ValueError."""
    return [*_thaw(list(encoder.parameters())), *for_adaptation(decoder, whole=whole, motion_scope=motion_scope)]


def for_adaptation(
    decoder: CogVideoXTransformer3DModel, *, whole: bool = False, motion_scope: bool = True
) -> list[nn.Parameter]:
    """Adaptation: the shot decoder's adapters, the adaLN of its blocks, the motion scope's embedding.

    `whole`: all parameters of a small shot decoder with a random base, since adapters alone are not enough. A
    transformer of CogVideoX will do, which has no motion scope. ValueError when it has no adapters and is not whole.
    """
    decoder.requires_grad_(False)
    if whole:
        return _thaw([p for name, p in decoder.named_parameters() if motion_scope or not is_motion(name)])
    adapters = [parameter for name, parameter in decoder.named_parameters() if ".lora_" in name]
    if not adapters:
        raise ValueError("the shot decoder has no adapters to train; call models.shot_decoder.add_lora first")
    own = [
        parameter
        for name, parameter in decoder.named_parameters()
        if is_own(name) and (motion_scope or not is_motion(name))
    ]
    return _thaw([*adapters, *own])


def _thaw(parameters: list[nn.Parameter]) -> list[nn.Parameter]:
    for parameter in parameters:
        parameter.requires_grad_(True)
    return parameters
