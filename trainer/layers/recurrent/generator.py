"""Generation of sequences by beam search: each step of a recurrent group reads the ids chosen in the previous step.

A path is an unfinished or finished sequence of ids; its score is the sum of the log probabilities of its ids. Each step
extends every unfinished path by its best ids. A path ends with the eos id or at the maximum length. Each sample
continues with its best `beam_size` unfinished paths, and drops finished paths that score below all unfinished paths. A
sample is done when it has `beam_size` finished paths and every finished path scores at least as high as the best
unfinished path.

Source: spec/config.md 12; gserver/gradientmachines/RecurrentGradientMachine.cpp of v0.10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paddle_base.proto.ModelConfig_pb2 import LayerConfig, ModelConfig
from paddle_base.runtime.errors import ConfigError
from trainer.arrays.arguments import Argument, Array, Ids
from trainer.arrays.parameters import ParameterTable
from trainer.layers.ragged import join_ragged, starts_of, take_ragged
from trainer.layers.recurrent.agents import GroupOutput
from trainer.layers.recurrent.group import GroupLayer, MakeNetwork, StepNetwork
from trainer.layers.recurrent.subnetworks import Group
from trainer.layers.ties import find_best, select_largest, sort_largest

SCORES = "scores"  # name of an additional output, (samples, results), which exists if a sample has more than one result


@dataclass(frozen=True)
class Path:
    """A path of the beam search. The path's memories read row `row` of the outputs of the last step."""

    sample: int
    ids: tuple[int, ...]
    score: float
    row: int


@dataclass(frozen=True)
class Limits:
    """The number of paths that the search follows, the maximum length of a path, and the id that ends a path."""

    beam_size: int
    most_ids: int
    eos_id: int


def expand(live: Sequence[Path], gains: Array, best: Ids, limits: Limits) -> tuple[list[Path], list[Path]]:
    """Extend the paths by each of their best ids. Return first the unfinished and then the finished extended paths.

    Shapes: gains: (paths, vocabulary), the log probability of each id; best: (paths, count).
    """
    going_on: list[Path] = []
    ended: list[Path] = []
    for row, path in enumerate(live):
        for one in best[row].tolist():
            score = float(gains.dtype.type(path.score) + gains[row, one])  # as in v0.10, rounded at each step
            longer = Path(path.sample, (*path.ids, one), score, row)
            is_end = one == limits.eos_id or len(longer.ids) >= limits.most_ids
            (ended if is_end else going_on).append(longer)
    return going_on, ended


def shrink(going_on: list[Path], finished: list[Path], beam_size: int) -> tuple[list[Path], list[Path]]:
    """Return the paths of one sample that the search keeps: the unfinished and the finished paths."""
    going_on = [going_on[place] for place in select_largest([path.score for path in going_on], beam_size)]
    if not going_on:
        return [], finished
    scores = [path.score for path in going_on]
    finished = [path for path in finished if path.score >= min(scores)]
    if len(finished) >= beam_size and min(path.score for path in finished) >= max(scores):
        return [], finished
    return going_on, finished


class GeneratorLayer(GroupLayer):
    """A group that generates sequences; its output consists of ids, one sequence for each sample.

    With one result per sample, the sequence consists of the result's ids, including eos. With several results, the
    sequence has three parts for each result: the number of ids, the ids, and -1. The best result comes first. The
    additional output "scores" then has the scores of the results.

    A layer of the step that an evaluator reads becomes a further output: the rows of all live paths, one sequence for
    each step. v0.10 gave these rows to the evaluator step by step.
    """

    takes_gradient = False

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self._limits: Limits
        self._results = 1
        self._is_logarithmic = True
        self._predicted = self._probabilities = self._result = ""
        self._watched: list[str] = []
        self._network: StepNetwork

    def open(self, group: Group, make_network: MakeNetwork) -> None:
        """Set the group that the layer runs. The group computes the probabilities, and this layer chooses the ids.

        Raises: ConfigError: the group does not have the form that beam_search produces.
        """
        record, generator = group.record, group.record.generator
        layers = {one.name: one for one in group.step.layers}
        results = [link for link in record.out_links if link.layer_name != link.link_name]
        if not results:
            raise ConfigError(f"{self}: a group that generates needs a result, the ids; use beam_search")
        self._predicted, self._result = results[0].layer_name, results[0].link_name
        self._watched = [link.layer_name for link in record.out_links if link.layer_name == link.link_name]
        if record.in_links or not self.config.inputs:
            raise ConfigError(f"{self}: a group that generates needs static inputs or boot layers, and no sequences")
        if generator.eos_layer_name not in layers or layers[self._predicted].type != "maxid":
            raise ConfigError(f"{self}: a group that generates must end in a maxid and an eos layer; use beam_search")
        eos_id = int(layers[generator.eos_layer_name].eos_id)
        self._limits = Limits(max(generator.beam_size, 1), generator.max_num_frames, eos_id)
        self._results = min(max(generator.num_results_per_sample, 1), self._limits.beam_size)
        self._is_logarithmic = generator.log_prob
        self._probabilities = layers[self._predicted].inputs[0].input_layer_name
        step = ModelConfig()
        step.CopyFrom(group.step)
        # the ids of the maxid layer are not computed: the search chooses among the probabilities of all paths
        remembered = [name for name in group.step.output_layer_names if name != self._predicted]
        del step.output_layer_names[:]
        step.output_layer_names.extend(dict.fromkeys([self._probabilities, *remembered, *self._watched]))
        self.prepare(Group(record, step))
        self._network = make_network(step, self._parameters)

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Search, and return the best sequences of each sample."""
        seen: list[dict[str, Argument]] = []
        found = self._search(inputs, inputs[0].sequences, seen)
        found = [_take_best(paths, self._results) for paths in found]
        spelled = [self._spell(paths) for paths in found]
        ids = np.array([one for sample in spelled for one in sample], np.int64)
        starts = starts_of(np.array([len(sample) for sample in spelled], np.int64))
        scores = np.full((len(found), self._results), -np.inf, self._dtype)
        for row, paths in zip(scores, found, strict=True):
            row[: len(paths)] = [path.score for path in paths]
        extras = {SCORES: scores} if self._results > 1 else {}
        links = {name: self._join_steps([step[name] for step in seen], name) for name in self._watched}
        links[self._result] = Argument(ids=ids, starts=starts, extras=extras)
        return GroupOutput(links, np.zeros((0, 0), self._dtype))

    def _join_steps(self, steps: Sequence[Argument], name: str) -> Argument:
        """Return the rows of all steps; each step is a sequence, unless its rows are sequences themselves."""
        if not steps:
            return Argument(
                value=np.zeros((0, self._sizes[name]), self._dtype), starts=starts_of(np.zeros(0, np.int64))
            )
        joined = join_ragged(steps)
        starts = (
            starts_of(np.array([step.rows for step in steps], np.int64)) if joined.starts is None else joined.starts
        )
        return Argument(value=joined.value, ids=joined.ids, starts=starts)

    def _search(self, inputs: Sequence[Argument], samples: int, seen: list[dict[str, Argument]]) -> list[list[Path]]:
        """Return the finished paths of each sample; `seen` receives the watched layers of each step."""
        memories = [self.boot(one, inputs, np.arange(samples)) for one in self._group.record.memories]
        live = [Path(sample, (), 0.0, sample) for sample in range(samples)]
        finished: list[list[Path]] = [[] for _ in range(samples)]
        before: dict[str, Argument] = {}
        while live:
            sample_of = np.array([path.sample for path in live])
            row_of = np.array([path.row for path in live])
            rows: dict[str, Argument] = {}
            for memory in memories:
                name = memory.record.layer_name
                if memory.is_static or not before:
                    rows[memory.record.link_name] = take_ragged(memory.boot, memory.boot.starts, sample_of)
                elif name == self._predicted:
                    rows[memory.record.link_name] = Argument(ids=np.array([path.ids[-1] for path in live]))
                else:
                    rows[memory.record.link_name] = take_ragged(before[name], before[name].starts, row_of)
            before = self._network.forward(rows, None, is_training=False)
            seen.append({name: before[name] for name in self._watched})
            given = before[self._probabilities]
            p = given.value if given.sparse is None else given.sparse.to_dense(self._dtype)
            if p is None:
                raise ConfigError(f"{self}: {self._probabilities} gives no probabilities from which ids can be chosen")
            # the score of an impossible id is -inf
            with np.errstate(divide="ignore"):
                gains = np.log(p) if self._is_logarithmic else p
            going_on, ended = expand(live, gains, find_best(p, self._limits.beam_size), self._limits)
            for path in ended:
                finished[path.sample].append(path)
            live = []
            for sample, paths in _by_sample(going_on).items():
                kept, finished[sample] = shrink(paths, finished[sample], self._limits.beam_size)
                live += kept
        return finished

    def _spell(self, paths: Sequence[Path]) -> list[int]:
        if self._results == 1:
            return list(paths[0].ids) if paths else []
        return [one for path in paths for one in (len(path.ids), *path.ids, -1)]


def _take_best(paths: Sequence[Path], count: int) -> list[Path]:
    return [paths[place] for place in sort_largest([path.score for path in paths], count)[:count]]


def _by_sample(paths: Sequence[Path]) -> dict[int, list[Path]]:
    found: dict[int, list[Path]] = {}
    for path in paths:
        found.setdefault(path.sample, []).append(path)
    return found
