"""The training loop: warm-up on labelled texts, then epochs of self-training. Any step can be the last before a kill.

Which texts a step sees, and its random numbers, depend on the seed and the step alone. So the state of the objective,
of the optimizers, of the averaged weights and of the pool is all that a checkpoint needs for an exact resume.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from halflabel.devices import reseed
from halflabel.encoders.inputs import BatchSampler
from halflabel.errors import SettingError
from halflabel.nn.pseudo_labels import label_frequencies
from halflabel.notices import EpochReport, Notice, Report, StepProgress, silent
from halflabel.processes import Interrupted, stop_requested
from halflabel.randomness import Stream, generator, shuffled
from halflabel.training.checkpoint import CheckpointStore, State, copied, on_cpu, snapshot
from halflabel.training.distributed import RankLost
from halflabel.training.objective import Objective, OptimizerPhase, Problem, StepBatch, StepResult
from halflabel.training.optimizers import Optimizers
from halflabel.training.statistics import EpochStatistics, PoolState, epoch_statistics
from halflabel.types import Plan

COLLAPSE_TEXTS = 1000  # pool texts whose labels tell a collapse
DevScorer = Callable[[], float]  # scores the network as it stands on the dev set


@dataclass(frozen=True)
class Outcome:
    """How a run ended; the weights are in the objective."""

    pool: PoolState
    reason: str
    notices: tuple[Notice, ...]
    dev_score: float | None  # of the model that was kept


def train(trainer: Trainer, store: CheckpointStore, report: Report, dev_scorer: DevScorer | None = None, *,
          checkpoint_seconds: float = 60.0) -> Outcome:
    """Trains the objective in place and leaves the averaged weights in it, or with a dev set the best ones."""
    ranks = trainer.objective.ranks
    if (checkpoint := ranks.from_first(store.latest)) is not None:
        trainer.load(*checkpoint)
    else:
        trainer.log_start(store, report)
    saved = time.monotonic()
    with stop_requested() as stop:
        while True:
            while trainer.plan_step < trainer.plan.steps:
                lost = None
                try:
                    if trainer.at_epoch_start:
                        trainer.start_epoch(store, report, dev_scorer)
                    report(trainer.train_step(report))
                    stopping = ranks.any(stop.is_set())
                except RankLost as error:
                    stopping, lost = True, error
                whole = lost is None or lost.undone
                if whole and (stopping or time.monotonic() - saved > checkpoint_seconds):
                    store.checkpoint(trainer.step, trainer.tensors(), trainer.position())
                    saved = time.monotonic()
                if stopping:
                    reason = f"{lost}; " if lost else ""
                    raise Interrupted(f"{reason}stopped after step {trainer.step} of {trainer.steps}")
            if (outcome := trainer.finish(store, report, dev_scorer)) is not None:
                return outcome


class Trainer:
    """Everything that changes during a run, and the operations that change it."""

    def __init__(self, objective: Objective, problem: Problem, plan: Plan, seed: int) -> None:
        self.objective, self.problem, self.plan, self.seed = objective, problem, plan, seed
        self.step = 0
        self.discarded_steps = 0  # those before the pool was abandoned
        self.method_uses_pool = problem.unlabelled > 0 and objective.method.uses_pool
        self.average = averaged_model(objective.network, plan.ema)
        self.optimizers = Optimizers(objective, plan)
        self.pool = PoolState(problem.y.shape[1], problem.unlabelled, problem.task, guard=plan.guard == "on")
        self.after_warmup, self.moments_after_warmup = snapshot(objective), State()
        self.best: State = {}
        self.dev_score: float | None = None
        self.notices: list[Notice] = []
        self.halvings = 0  # of the batches, where they did not fit into the device's memory
        self.epoch_batches: dict[int, tuple[np.ndarray, BatchSampler]] = {}
        lengths = problem.inputs.lengths
        labelled, unlabelled = lengths[: problem.labelled], lengths[problem.labelled :]
        self.warmup_batches = BatchSampler(labelled, plan.warmup_batch or plan.labelled_batch, seed=seed,
                                           stream=Stream.LABELLED_BATCHES)
        self.labelled_batches = BatchSampler(labelled, plan.labelled_batch, seed=seed, stream=Stream.LABELLED_BATCHES)
        self.unlabelled_batches = BatchSampler(unlabelled, plan.unlabelled_batch if self.method_uses_pool else 0,
                                               seed=seed, stream=Stream.UNLABELLED_BATCHES)

    # One step

    def train_step(self, report: Report = silent) -> StepProgress:
        """One step of gradient descent; batches that do not fit into the device's memory are halved for good."""
        self.optimizers.set_rates(self.plan_step)
        self.objective.train()
        while (result := self.attempt(batch := self.batch())) is None:
            self.halve_batches(batch, report)
        self.average.update_parameters(self.objective.network)
        if result.target is not None:
            self.pool.record(batch.unlabelled, result.target, self.step)
        self.step += 1
        accepted = float((result.target.weight > 0).float().mean()) if result.target is not None else None
        return StepProgress(self.step, self.steps, float(result.loss.detach()), accepted)

    @property
    def progress(self) -> float:
        """Of self-training, in [0, 1]; below 0 during warm-up."""
        return (self.plan_step - self.plan.warmup) / max(1, self.plan.steps - self.plan.warmup)

    def batch(self) -> StepBatch:
        """The rows of this step and its randomness."""
        sampler = self.warmup_batches if self.plan_step < self.plan.warmup else self.labelled_batches
        labelled, unlabelled = (rows[: -(-len(rows) >> self.halvings)]
                                for rows in (sampler.rows(self.plan_step), self.pool_rows()))
        return StepBatch(labelled, unlabelled, generator(self.seed, Stream.STEP, self.plan_step),
                         max(0.0, self.progress))

    def attempt(self, batch: StepBatch) -> StepResult | None:
        """The result of a step; None, with the buffers as they were, if the device is out of memory."""
        reseed(self.objective.device, (self.seed * 1_000_003 + self.plan_step) % 2**63)
        weight = self.objective.method.weight(self.progress) * float(self.pool.trust)
        may_fail = self.objective.device.type != "cpu" or self.objective.ranks.several
        before = copied(dict(self.objective.named_buffers())) if may_fail else {}
        try:
            result, *_ = [self.optimize(phase, batch, weight) for phase in self.objective.phases]
        except RankLost as lost:
            self.objective.load_state_dict(before, strict=False)
            lost.undone = len(self.objective.phases) == 1  # else an earlier phase may have changed weights
            raise
        except torch.OutOfMemoryError:
            if self.objective.ranks.several:  # which would all have to go back
                raise SettingError(f"{self.objective.device} is out of memory; set labelled_batch and unlabelled_batch "
                                   "lower, or start more processes.") from None
            self.objective.load_state_dict(before, strict=False)
            return None
        return result

    def halve_batches(self, batch: StepBatch, report: Report) -> None:
        """Halves the batches of this step and of all after it, and says so."""
        if max(len(batch.labelled), len(batch.unlabelled)) <= 1:
            raise SettingError(f"a step on single texts does not fit into the memory of {self.objective.device}; set "
                               "max_tokens lower, choose a smaller encoder, or choose cpu as the device.")
        self.halvings += 1
        smaller = self.batch()
        self.notices.append(Notice(f"out of memory; the batches are halved, to {len(smaller.labelled)} labelled and "
                                   f"{len(smaller.unlabelled)} unlabelled texts", self.step))
        report(self.notices[-1])

    def optimize(self, phase: OptimizerPhase, batch: StepBatch, weight: float) -> StepResult:
        """One phase of a step; a loss without gradient changes nothing."""
        result: StepResult = self.objective(self.problem, batch._replace(phase=phase.name), weight)
        if result.loss.requires_grad:
            self.optimizers.step(phase, result.loss)
        return result

    def pool_rows(self) -> np.ndarray:
        """Rows of the pool that this step trains on; none during warm-up or once the pool was abandoned."""
        if self.plan_step < self.plan.warmup or not self.uses_pool:
            return np.empty(0, dtype=np.int64)
        since = self.plan_step - self.plan.warmup
        if not self.objective.pseudo_labels.trains_on_epoch_sample:
            return self.unlabelled_batches.rows(since)
        if self.epoch not in self.epoch_batches:
            rows = self.epoch_sample()
            lengths = self.problem.inputs.lengths[self.problem.labelled + rows]
            batches = BatchSampler(lengths, self.unlabelled_batches.size, seed=self.seed,
                                   stream=Stream.EPOCH_BATCHES + self.epoch)
            self.epoch_batches = {self.epoch: (rows, batches)}
        rows, batches = self.epoch_batches[self.epoch]
        return rows[batches.rows(since % self.plan.epoch_steps)]

    # One epoch

    def start_epoch(self, store: CheckpointStore, report: Report, dev_scorer: DevScorer | None) -> None:
        """Updates the statistics (Eqs. 6 to 8), checks for collapse, saves the best model so far."""
        self.objective.ranks.copy_first(self.objective.buffers())
        first = self.plan_step == self.plan.warmup
        if first:
            if self.plan.warmup:
                self.reset_average()
            self.after_warmup = snapshot(self.objective)
            self.moments_after_warmup = copied(self.optimizers.moments())
        figures: dict[str, Any] = {"trust": float(self.pool.trust)}
        labelled_by_start = first and self.objective.method.closed_form_head
        rows = self.some_of_the_sample() if labelled_by_start else self.epoch_sample()
        statistics = self.statistics(rows)
        if len(rows):
            if first:
                self.set_reference(statistics)
            elif self.pool.collapsed(statistics.shares()):
                figures["notice"] = self.abandon_pool(report)
                statistics = self.statistics(rows := self.epoch_sample())  # of the labelled texts alone
            if len(rows) and not labelled_by_start:
                self.objective.pseudo_labels.update_epoch(
                    torch.from_numpy(rows), statistics.p, statistics.f, self.problem.y.cpu())
        if self.plan_step > 0 and not self.discarded_steps:  # labelled texts alone are too few for variances
            device = self.objective.device
            self.objective.network.angles.update(statistics.f.to(device), statistics.y.to(device))
        self.objective.penalty.update(self.objective.network.head)
        figures |= statistics.figures(self.problem) | self.objective.report()
        if self.plan_step > 0:
            figures |= self.save_best(store, dev_scorer)
        self.log(EpochReport(self.step, self.epoch, figures), store, report)

    def set_reference(self, statistics: EpochStatistics) -> None:
        """Sets the class shares that later ones are compared with, to detect a collapse."""
        fitted = self.plan.warmup > 0 or self.objective.method.closed_form_head
        if fitted:
            self.pool.set_reference(statistics.shares())
        elif self.objective.pseudo_labels.gives_labels:
            self.pool.set_reference(label_frequencies(self.problem.y.cpu()).double().numpy())

    def statistics(self, rows: np.ndarray) -> EpochStatistics:
        """Features and pseudo-labels of the labelled texts and of some rows of the pool, by the teacher's weights."""
        with self.averaged_weights() if self.objective.method.averaged_teacher else nullcontext():
            return epoch_statistics(self.objective, self.problem, rows)

    def epoch_sample(self) -> np.ndarray:
        """Rows of the pool that this epoch's statistics are computed on."""
        if not self.uses_pool:
            return np.empty(0, dtype=np.int64)
        rng = generator(self.seed, Stream.EPOCH_SAMPLE, max(0, self.epoch))
        return np.sort(shuffled(rng, self.problem.unlabelled)[: self.plan.survey]).astype(np.int64)

    def some_of_the_sample(self) -> np.ndarray:
        """Rows of the epoch's sample that are enough to detect a collapse, where no pseudo-labels are made of them."""
        rows = self.epoch_sample()
        return rows[:: max(1, len(rows) // COLLAPSE_TEXTS)]

    def abandon_pool(self, report: Report) -> str:
        """Returns to the state after warm-up, to go on with the labelled texts alone and without balanced angles."""
        self.objective.load_state_dict(self.after_warmup)
        self.reset_average()
        self.optimizers.reset()
        self.optimizers.load(copied(self.moments_after_warmup))
        self.discarded_steps = self.step - self.plan.warmup
        message = self.pool.abandon()
        self.notices.append(Notice(message, self.step))
        report(self.notices[-1])
        return message

    def save_best(self, store: CheckpointStore, dev_scorer: DevScorer | None) -> dict[str, float]:
        """Saves the averaged model, or with a dev set the best so far."""
        with self.averaged_weights():
            score = self.objective.ranks.from_first(dev_scorer) if dev_scorer else None
            if score is None or self.dev_score is None or score > self.dev_score:
                self.dev_score = score
                self.best = snapshot(self.objective.network) if dev_scorer else {}
                store.model(self.objective.network.state_dict())
        return {"dev": score} if score is not None else {}

    # Beginning and end

    def log_start(self, store: CheckpointStore, report: Report) -> None:
        """Logs what the method's start reported."""
        start = self.problem.start
        self.pool.trust.fill_(start.trust)
        for line in start.log:
            store.log({"step": 0} | line)
        for notice in start.notices:
            store.log({"step": 0, "notice": str(notice)})
            report(notice)
            self.notices.append(notice)
        if start.label is not None and start.since is not None:
            self.pool.label.copy_(start.label)
            self.pool.since.copy_(start.since)

    def finish(self, store: CheckpointStore, report: Report, dev_scorer: DevScorer | None) -> Outcome | None:
        """Keeps the averaged weights, or the best; None if they collapsed and training goes on without the pool."""
        figures: dict[str, Any] = {"trust": float(self.pool.trust)} | self.save_best(store, dev_scorer)
        self.objective.network.load_state_dict(self.best or self.average.module.state_dict())
        method = self.objective.method
        rows = self.some_of_the_sample() if method.closed_form_head and not method.refit else self.epoch_sample()
        statistics = epoch_statistics(self.objective, self.problem, rows)
        end = EpochReport(self.step, self.epoch, figures, end=True)
        collapsed = len(rows) > 0 and self.pool.collapsed(statistics.shares()) and not self.best
        if collapsed:
            figures["notice"] = self.abandon_pool(report)
            end = EpochReport(self.step, self.epoch, figures)
        figures |= statistics.figures(self.problem) | self.objective.report()
        self.log(end, store, report)
        if collapsed:
            return None
        if method.refit is not None and self.plan.steps:
            method.refit(statistics.f, self.problem.y.cpu(), torch.from_numpy(rows))
            store.model(self.objective.network.state_dict())
            self.dev_score = self.objective.ranks.from_first(dev_scorer) if dev_scorer else None
        self.objective.eval()
        reason = "all steps done, after the pool was abandoned" if self.discarded_steps else "all steps done"
        return Outcome(self.pool, reason, tuple(self.notices), self.dev_score)

    def log(self, epoch: EpochReport, store: CheckpointStore, report: Report) -> None:
        store.log(epoch.to_json())
        report(epoch)

    # Position and state

    @property
    def plan_step(self) -> int:
        """The step of the plan; abandoning the pool sets it back to the end of warm-up."""
        return self.step - self.discarded_steps

    @property
    def steps(self) -> int:
        return self.plan.steps + self.discarded_steps

    @property
    def epoch(self) -> int:
        return (self.plan_step - self.plan.warmup) // self.plan.epoch_steps

    @property
    def at_epoch_start(self) -> bool:
        since = self.plan_step - self.plan.warmup
        return since >= 0 and since % self.plan.epoch_steps == 0

    @property
    def uses_pool(self) -> bool:
        return self.method_uses_pool and float(self.pool.trust) > 0.0

    @contextmanager
    def averaged_weights(self) -> Iterator[None]:
        """The network with averaged weights, for as long as the context lasts."""
        network, current = self.objective.network, snapshot(self.objective.network)
        network.load_state_dict(self.average.module.state_dict())
        try:
            yield
        finally:
            network.load_state_dict(current)

    def reset_average(self) -> None:
        """Restarts averaging from the current weights."""
        self.average.module.load_state_dict(self.objective.network.state_dict())

    def tensors(self) -> State:
        """All state as named tensors."""
        states = {"objective": self.objective.state_dict(), "average": self.average.module.state_dict(),
                  "pool": self.pool.state_dict(), "after warmup": self.after_warmup,
                  "moments after warmup": self.moments_after_warmup, "best": self.best,
                  "moments": self.optimizers.moments()}
        return on_cpu({f"{part}/{name}": tensor for part, state in states.items() for name, tensor in state.items()})

    def position(self) -> dict[str, Any]:
        """All state that is not a tensor."""
        return {"step": self.step, "discarded_steps": self.discarded_steps, "dev_score": self.dev_score,
                "halvings": self.halvings, "scaler": self.optimizers.scaler.state_dict(),
                "notices": [[notice.message, notice.step] for notice in self.notices]}

    def load(self, tensors: State, position: dict[str, Any]) -> None:
        """Continues exactly where `tensors` and `position` were taken."""
        states = defaultdict[str, State](dict)
        for path, tensor in tensors.items():
            part, name = path.split("/", 1)
            states[part][name] = tensor
        self.objective.load_state_dict(states["objective"])
        self.average.module.load_state_dict(states["average"])
        self.pool.load_state_dict(states["pool"])
        self.after_warmup, self.moments_after_warmup = states["after warmup"], states["moments after warmup"]
        self.best = states["best"]
        self.optimizers.load(states["moments"])
        self.step, self.discarded_steps = position["step"], position["discarded_steps"]
        self.dev_score, self.halvings = position["dev_score"], position.get("halvings", 0)
        if self.optimizers.scaler.is_enabled() and position.get("scaler"):  # else the run was in another precision
            self.optimizers.scaler.load_state_dict(position["scaler"])
        self.notices = [Notice(message, step) for message, step in position["notices"]]


def averaged_model(network: nn.Module, decay: float) -> AveragedModel:
    """An exponential moving average of the parameters; buffers are copied, not averaged."""
    average = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(decay))
    average.n_averaged.fill_(1)  # otherwise the first update would replace the initial weights
    return average
