"""A run: everything that changes while it goes on, and the moves that change it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from halflabel.data.batches import Batches, shuffled
from halflabel.parts.prior import prior
from halflabel.train.checkpoint import Kept, State, copied, snapshot
from halflabel.train.ema import Average
from halflabel.train.guard import Guard
from halflabel.train.objective import Draw, Objective, Problem, Step, Turn
from halflabel.train.optimizer import Descent
from halflabel.train.survey import Survey, describe, survey
from halflabel.types import Plan

Report = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Outcome:
    """What a run ends with; the objective itself holds the weights."""

    guard: Guard
    why: str
    notices: tuple[str, ...]
    score: float | None  # on the dev texts, of the model that was kept


def reseed(device: torch.device, seed: int) -> None:
    """What torch.manual_seed does, without the stack traces that it takes each time where there is no GPU."""
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        getattr(torch, device.type).manual_seed(seed)


class Run:
    """Everything that changes while a run goes on, and the moves that change it."""

    def __init__(self, objective: Objective, problem: Problem, plan: Plan, seed: int) -> None:
        self.objective, self.problem, self.plan, self.seed = objective, problem, plan, seed
        self.step = 0
        self.undone = 0  # steps, when the pool that they learnt from was given up
        self.uses_pool = problem.unlabelled > 0 and objective.method.uses_pool
        self.average = Average(objective.network, plan.ema)
        self.descent = Descent(objective, plan)
        self.guard = Guard(problem.y.shape[1], problem.unlabelled, problem.task)
        self.start, self.moments = snapshot(objective), State()
        self.best: State = {}
        self.score: float | None = None
        self.notices: list[str] = []
        self.surveyed: dict[int, tuple[np.ndarray, Batches]] = {}
        lengths = problem.source.lengths
        size = plan.unlabelled_batch if self.uses_pool else 0
        first, rest = lengths[: problem.labelled], lengths[problem.labelled :]
        self.warming = Batches(first, plan.warmup_batch or plan.labelled_batch, seed=seed, stream=1)
        self.labelled = Batches(first, plan.labelled_batch, seed=seed, stream=1)
        self.unlabelled = Batches(rest, size, seed=seed, stream=2)

    def begin(self, keeper: Kept, report: Report) -> None:
        """Notes what the method's start came to."""
        lines, label, since, trust = self.problem.began
        self.guard.trust.fill_(trust)
        for line in lines:
            keeper.log({"step": 0} | line)
            report(line)
            self.notices += [line["notice"]] if "notice" in line else []
        if label is not None and since is not None:
            self.guard.label.copy_(label)
            self.guard.since.copy_(since)

    @property
    def at(self) -> int:
        """The step of the plan; when the pool is given up, it goes back to where a run without one would be."""
        return self.step - self.undone

    @property
    def steps(self) -> int:
        return self.plan.steps + self.undone

    @property
    def at_epoch_start(self) -> bool:
        since = self.at - self.plan.warmup
        return since >= 0 and since % self.plan.epoch_steps == 0

    @property
    def epoch(self) -> int:
        return (self.at - self.plan.warmup) // self.plan.epoch_steps

    @property
    def hears_pool(self) -> bool:
        return self.uses_pool and float(self.guard.trust) > 0.0

    def sample(self) -> np.ndarray:
        """Rows of the pool that this epoch looks at: a function of seed and epoch alone."""
        if not self.hears_pool:
            return np.empty(0, dtype=np.int64)
        rng = np.random.default_rng([self.seed, 3, max(0, self.epoch)])
        return np.sort(shuffled(rng, self.problem.unlabelled)[: self.plan.survey]).astype(np.int64)

    def pool_rows(self) -> np.ndarray:
        """Rows of the pool that this step learns from; none during warm-up or once the pool has lost all trust."""
        if self.at < self.plan.warmup or not self.hears_pool:
            return np.empty(0, dtype=np.int64)
        since = self.at - self.plan.warmup
        if not self.objective.pseudo.trains_on_survey:
            return self.unlabelled.rows(since)
        if self.epoch not in self.surveyed:
            rows = self.sample()
            lengths = self.problem.source.lengths[self.problem.labelled + rows]
            batches = Batches(lengths, self.unlabelled.size, seed=self.seed, stream=100 + self.epoch)
            self.surveyed = {self.epoch: (rows, batches)}
        rows, batches = self.surveyed[self.epoch]
        return rows[batches.rows(since % self.plan.epoch_steps)]

    def begin_epoch(self, keeper: Kept, report: Report, judge: Callable[[], float] | None) -> None:
        """Looks at all texts, refits the statistics (Eqs. 6-8), watches for collapse, keeps the best model."""
        if self.at == self.plan.warmup > 0:
            self.average.reset(self.objective.network)
        if self.at == self.plan.warmup:
            self.start, self.moments = snapshot(self.objective), copied(self.descent.moments())
        line: dict[str, Any] = {"step": self.step, "epoch": self.epoch, "trust": float(self.guard.trust)}
        rows = self.sample()
        seen = self.look(rows)
        if len(rows):
            if self.at == self.plan.warmup:
                started = self.plan.warmup > 0 or self.objective.method.closed_form
                if started or self.objective.pseudo.gives_labels:
                    self.guard.refer(seen.shares() if started else prior(self.problem.y).double().cpu().numpy())
            elif self.guard.collapsed(seen.shares()):
                line["notice"] = self.restart()
                rows = self.sample()  # none any more
                seen = self.look(rows)
            if len(rows) and (self.at > self.plan.warmup or not self.objective.method.closed_form):
                self.objective.pseudo.refresh(torch.from_numpy(rows), seen.p, seen.f, self.problem.y.cpu())
        if self.at > 0 and not self.undone:  # labelled texts alone are too few to take variances from
            self.objective.network.angles.refit(seen.f.to(self.objective.device), seen.y.to(self.objective.device))
        self.objective.penalty.refresh(self.objective.network.head)
        line |= describe(seen, self.problem) | self.objective.report()
        if self.at > 0:
            line |= self.keep(keeper, judge)
        keeper.log(line)
        report(line)

    def look(self, rows: np.ndarray) -> Survey:
        """Looks at the labelled texts and some rows of the pool, with the weights that the method teaches by."""
        averaged = self.average.applied(self.objective.network)
        with averaged if self.objective.method.averaged_teacher else nullcontext():
            return survey(self.objective, self.problem, rows)

    def restart(self) -> str:
        """Gives up the pool, and goes back to where an unbalanced run without one would be after its warm-up."""
        self.objective.load_state_dict(self.start)
        self.average.reset(self.objective.network)
        self.descent = Descent(self.objective, self.plan)
        self.descent.load(copied(self.moments))
        notice = self.guard.give_up()
        self.undone = self.step - self.plan.warmup
        self.notices.append(f"step {self.step}: {notice}")
        return notice

    def keep(self, keeper: Kept, judge: Callable[[], float] | None) -> dict[str, float]:
        """Writes the averaged model, or with a judge the best so far by its score."""
        with self.average.applied(self.objective.network):
            score = judge() if judge else None
            if score is None or self.score is None or score > self.score:
                self.score = score
                self.best = snapshot(self.objective.network) if judge else {}
                keeper.model(self.objective.network.state_dict())
        return {"dev": score} if score is not None else {}

    def learn(self) -> Step:
        """One step of gradient descent; its randomness is a function of seed and step alone."""
        self.descent.rates(self.at)
        reseed(self.objective.device, (self.seed * 1_000_003 + self.at) % 2**63)
        self.objective.train()
        done = (self.at - self.plan.warmup) / max(1, self.plan.steps - self.plan.warmup)
        labelled = self.warming if self.at < self.plan.warmup else self.labelled
        draw = Draw(labelled.rows(self.at), self.pool_rows(), np.random.default_rng([self.seed, 4, self.at]),
                    max(0.0, done))
        weight = self.objective.method.weight(done) * float(self.guard.trust)
        step, *_ = [self.move(turn, draw, weight) for turn in self.objective.turns]
        self.average.update(self.objective.network)
        if step.target is not None:
            self.guard.record(draw.unlabelled, step.target, self.step)
        self.step += 1
        return step

    def move(self, turn: Turn, draw: Draw, weight: float) -> Step:
        """One turn of a step; one that has nothing to learn is passed over."""
        step: Step = self.objective(self.problem, draw._replace(turn=turn.name), weight)
        if step.loss.requires_grad:
            self.descent(turn, step.loss)
        return step

    def end(self, keeper: Kept, report: Report, judge: Callable[[], float] | None) -> Outcome | None:
        """The last look: keeps the averaged weights, or the best; after a collapse there is more to do."""
        line: dict[str, Any] = {"step": self.step, "epoch": self.epoch, "trust": float(self.guard.trust), "end": True}
        line |= self.keep(keeper, judge)
        self.objective.network.load_state_dict(self.best or self.average.tensors)
        rows = self.sample()
        seen = survey(self.objective, self.problem, rows)
        fell = len(rows) > 0 and self.guard.collapsed(seen.shares()) and not self.best
        if fell:
            line |= {"notice": self.restart(), "end": False}
        line |= describe(seen, self.problem) | self.objective.report()
        keeper.log(line)
        report(line)
        if fell:
            return None
        self.objective.eval()
        why = "the pool was given up, all steps done on the labelled texts" if self.undone else "all steps done"
        return Outcome(self.guard, why, tuple(self.notices), self.score)

    def progress(self, step: Step) -> dict[str, Any]:
        """What the progress bar shows."""
        accepted = float((step.target.weight > 0).float().mean()) if step.target is not None else None
        return {"step": self.step, "steps": self.steps, "loss": float(step.loss.detach()), "accepted": accepted}

    def tensors(self) -> State:
        """All state as named tensors."""
        parts = {"objective": self.objective.state_dict(), "average": self.average.tensors,
                 "guard": self.guard.state_dict(), "start": self.start, "start moments": self.moments,
                 "best": self.best, "moments": self.descent.moments()}
        return copied({f"{part}/{name}": tensor for part, state in parts.items() for name, tensor in state.items()})

    def notes(self) -> dict[str, Any]:
        return {"step": self.step, "undone": self.undone, "score": self.score, "notices": self.notices}

    def load(self, tensors: State, notes: dict[str, Any]) -> None:
        """Goes on exactly where `tensors` and `notes` were taken."""
        part = defaultdict[str, State](dict)
        for name, tensor in tensors.items():
            where, rest = name.split("/", 1)
            part[where][rest] = tensor
        self.objective.load_state_dict(part["objective"])
        self.guard.load_state_dict(part["guard"])
        self.average.tensors, self.best = part["average"], part["best"]
        self.start, self.moments = part["start"], part["start moments"]
        self.descent.load(part["moments"])
        self.step, self.undone, self.score = notes["step"], notes["undone"], notes["score"]
        self.notices = list(notes["notices"])
