"""AdamW with a rate each for encoder and classifier, and its memory under the parameters' names."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from halflabel.train.checkpoint import State
from halflabel.train.objective import Objective
from halflabel.types import Plan


def make_optimizer(objective: Objective, plan: Plan) -> torch.optim.AdamW:
    """AdamW with a rate each for encoder and classifier, Sec. IV-A."""
    encoder = [p for p in objective.network.encoder.parameters() if p.requires_grad]
    own = {id(p) for p in encoder}
    rest = [p for p in objective.parameters() if p.requires_grad and id(p) not in own]
    groups = [{"params": rest, "lr": plan.head_rate, "peak": plan.head_rate}]
    if encoder:
        groups.append({"params": encoder, "lr": plan.encoder_rate, "peak": plan.encoder_rate})
    return torch.optim.AdamW(groups, eps=1e-6, weight_decay=plan.weight_decay, fused=True)


def rates(optimizer: torch.optim.AdamW, plan: Plan, step: int) -> None:
    """Sets the learning rates of a step: constant, or up over a twentieth of the run and down to zero."""
    share = 1.0
    if plan.schedule == "linear":
        rise = max(1, plan.steps // 20)
        share = min((step + 1) / rise, (plan.steps - step) / max(1, plan.steps - rise))
    for group in optimizer.param_groups:
        group["lr"] = group["peak"] * share


def moments(optimizer: torch.optim.AdamW, objective: nn.Module) -> State:
    """The optimizer's memory under the parameters' names."""
    return {f"{key}/{name}": value for name, p in objective.named_parameters()
            for key, value in optimizer.state.get(p, {}).items()}


def load_moments(optimizer: torch.optim.AdamW, objective: nn.Module, tensors: State) -> None:
    """Gives the optimizer its memory back."""
    named: dict[str, Tensor] = dict(objective.named_parameters())
    for place, tensor in tensors.items():
        key, name = place.split("/", 1)
        optimizer.state[named[name]][key] = tensor
