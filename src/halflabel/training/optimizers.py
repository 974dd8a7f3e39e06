"""The optimizers of a run, their learning rates, and what a checkpoint keeps of them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from halflabel.training.checkpoint import State
from halflabel.training.objective import Objective, OptimizerPhase
from halflabel.types import Plan


class Optimizers:
    """AdamW for each phase of a step, with separate learning rates for encoder and head (Sec. IV-A).

    In fp16, losses are scaled, so that small gradients do not vanish.
    """

    def __init__(self, objective: Objective, plan: Plan) -> None:
        self.objective, self.plan = objective, plan
        self.by_phase: dict[str, torch.optim.AdamW] = {}
        self.reset()

    def _adamw(self, phase: OptimizerPhase) -> torch.optim.AdamW:
        encoder = {id(p) for p in self.objective.network.encoder.parameters()}
        trained = [p for name, p in self.objective.named_parameters()
                   if p.requires_grad and name.startswith(phase.prefixes)]
        rates = {False: phase.rate * self.plan.head_rate, True: phase.rate * self.plan.encoder_rate}
        groups = [{"params": [p for p in trained if (id(p) in encoder) == inside], "lr": rate, "peak": rate}
                  for inside, rate in rates.items()]
        return torch.optim.AdamW(groups, eps=1e-6, weight_decay=self.plan.weight_decay, fused=True)

    def reset(self) -> None:
        """Forgets all moments."""
        fp16 = self.objective.network.encoder.precision == torch.float16
        self.scaler = torch.amp.GradScaler(self.objective.device.type, enabled=fp16)
        self.by_phase = {phase.name: self._adamw(phase) for phase in self.objective.phases}

    def set_rates(self, step: int) -> None:
        """Sets the learning rates of a step of the plan."""
        factor = rate_factor(self.plan, step)
        for optimizer in self.by_phase.values():
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * factor

    def step(self, phase: OptimizerPhase, loss: Tensor) -> None:
        """Back-propagates and updates the parameters of a phase alone."""
        optimizer = self.by_phase[phase.name]
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.objective.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward(inputs=parameters if len(self.by_phase) > 1 else None)
        self.objective.ranks.average([p.grad for p in parameters if p.grad is not None])
        if self.plan.clip < float("inf"):
            self.scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(parameters, self.plan.clip)
        self.scaler.step(optimizer)
        self.scaler.update()

    def moments(self) -> State:
        """The optimizers' state under the names of the parameters."""
        return {f"{phase}/{key}/{name}": value for phase, optimizer in self.by_phase.items()
                for name, p in self.objective.named_parameters() for key, value in optimizer.state.get(p, {}).items()}

    def load(self, moments: State) -> None:
        """Restores what `moments` gave."""
        parameters = dict(self.objective.named_parameters())
        for path, tensor in moments.items():
            phase, key, name = path.split("/", 2)
            self.by_phase[phase].state[parameters[name]][key] = tensor.to(parameters[name].device)


def rate_factor(plan: Plan, step: int) -> float:
    """The share of the peak learning rate: constant, or linear warm-up over 5 % of the steps, then linear decay."""
    if plan.schedule == "constant":
        return 1.0
    rise = max(1, plan.steps // 20)
    return min((step + 1) / rise, (plan.steps - step) / max(1, plan.steps - rise))
