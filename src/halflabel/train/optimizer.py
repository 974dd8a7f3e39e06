"""AdamW with a rate each for encoder and classifier, one for every turn of a step, and its memory by name."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from halflabel.train.checkpoint import State
from halflabel.train.objective import Objective, Turn
from halflabel.types import Plan


class Descent:
    """Moves the parameters of an objective down the gradients of its turns."""

    def __init__(self, objective: Objective, plan: Plan) -> None:
        self.objective, self.plan = objective, plan
        self.optimizers = {turn.name: make_optimizer(objective, plan, turn) for turn in objective.turns}

    def rates(self, step: int) -> None:
        """Sets the learning rates of a step: constant, or up over a twentieth of the run and down to zero."""
        share, plan = 1.0, self.plan
        if plan.schedule == "linear":
            rise = max(1, plan.steps // 20)
            share = min((step + 1) / rise, (plan.steps - step) / max(1, plan.steps - rise))
        for optimizer in self.optimizers.values():
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * share

    def __call__(self, turn: Turn, loss: Tensor) -> None:
        """One move; only what learns in the turn gets a gradient."""
        optimizer = self.optimizers[turn.name]
        mine = [p for group in optimizer.param_groups for p in group["params"]]
        self.objective.zero_grad(set_to_none=True)
        loss.backward(inputs=mine if len(self.optimizers) > 1 else None)
        if self.plan.clip < float("inf"):
            nn.utils.clip_grad_norm_(mine, self.plan.clip)
        optimizer.step()

    def moments(self) -> State:
        """The optimizers' memory under the parameters' names."""
        return {f"{turn}/{key}/{name}": value for turn, optimizer in self.optimizers.items()
                for name, p in self.objective.named_parameters() for key, value in optimizer.state.get(p, {}).items()}

    def load(self, tensors: State) -> None:
        """Gives the optimizers their memory back."""
        named = dict(self.objective.named_parameters())
        for place, tensor in tensors.items():
            turn, key, name = place.split("/", 2)
            self.optimizers[turn].state[named[name]][key] = tensor


def make_optimizer(objective: Objective, plan: Plan, turn: Turn) -> torch.optim.AdamW:
    """AdamW with a rate each for encoder and classifier, Sec. IV-A."""
    own = {id(p) for p in objective.network.encoder.parameters()}
    learning = [p for name, p in objective.named_parameters() if p.requires_grad and name.startswith(turn.learns)]
    groups = [{"params": [p for p in learning if (id(p) in own) == inside], "lr": rate, "peak": rate}
              for inside, rate in ((False, turn.rate * plan.head_rate), (True, turn.rate * plan.encoder_rate))]
    return torch.optim.AdamW(groups, eps=1e-6, weight_decay=plan.weight_decay, fused=True)
