"""The beam search of a group that generates, as a Loop over the steps. No I/O.

`trainer/layers/recurrent/generator.py` has the rules. Here every sample has `beam_size` places for paths in every step;
a place without a path has the key NONE, and its numbers are not used. A key is a score, of which -inf (an impossible
id) is LOWEST. Of paths with equal scores, the first ones are kept.

The result has the form that the layer prints: with one result for a sample its ids, including eos, and with several of
them for each one the number of ids, the ids, and -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from paddle_base.proto.ModelConfig_pb2 import MemoryConfig, ModelConfig
from trainer.export.onnx.families.groups import boot, is_static, refuse_sequence
from trainer.export.onnx.graph import BOOL, FLOAT, INT64, Graph
from trainer.export.onnx.padding import count_frames, take_frames, unsqueeze
from trainer.export.onnx.registry import CannotExportError, LayerExport, exports
from trainer.export.onnx.values import Value
from trainer.layers.recurrent.generator import SCORES
from trainer.layers.recurrent.subnetworks import GENERATOR, Group

LOWEST = float(np.float32(-3e38))  # the key of a path with the score -inf
NONE = -np.inf


@exports(GENERATOR)
def _generator(call: LayerExport) -> Value:
    """The ids of the best paths, as a further output by the name of their gather agent."""
    group = call.groups[call.config.name]
    results = [link for link in group.record.out_links if link.layer_name != link.link_name]
    if not results or group.record.in_links or not call.inputs:
        raise CannotExportError("it generates, but has not the form that beam_search gives it")
    return Value("", 0, extras={results[0].link_name: _Search(call, group).spell()})


@dataclass(frozen=True)
class _Beam:
    """The tensors of a step. K is the number of places, R that of results, M the largest number of ids.

    Shapes: keys: (batch, K), of the unfinished paths; ids: (batch, K, M); words: (batch * K,), the last ids; best_keys:
        (batch, R), of the best finished paths, the best first; best_ids: (batch, R, M); best_lengths: (batch, R);
        finished: (batch, any), the keys of all finished paths.
    """

    keys: str
    ids: str
    words: str
    best_keys: str
    best_ids: str
    best_lengths: str
    finished: str

    KINDS = (FLOAT, INT64, INT64, FLOAT, INT64, INT64, FLOAT)
    RANKS = (2, 3, 1, 2, 3, 2, 2)

    def names(self) -> list[str]:
        """Return the tensors in the order of KINDS and RANKS."""
        return [
            self.keys,
            self.ids,
            self.words,
            self.best_keys,
            self.best_ids,
            self.best_lengths,
            self.finished,
        ]


class _Search:
    """The nodes of a search."""

    def __init__(self, call: LayerExport, group: Group) -> None:
        record, layers = group.record, {one.name: one for one in group.step.layers}
        generator = record.generator
        self._call = call
        self._group = group
        self._graph = call.graph
        self._predicted = next(one.layer_name for one in record.out_links if one.layer_name != one.link_name)
        self._probabilities = layers[self._predicted].inputs[0].input_layer_name
        self._eos = int(layers[generator.eos_layer_name].eos_id)
        self._is_logarithmic = bool(generator.log_prob)
        self._width = max(int(generator.beam_size), 1)
        self._results = min(max(int(generator.num_results_per_sample), 1), self._width)
        self._most = int(generator.max_num_frames)
        self._ways = min(self._width, int(layers[self._probabilities].size))  # how many ids extend a path
        self._batch = call.graph.dim(call.inputs[0].name, 0)

    # ----- The Loop -----

    def spell(self) -> Value:
        """Return the ids of the results, with their scores as a further output if there are several."""
        keys, ids, lengths = self._run()
        return self._spell_one(keys, ids, lengths) if self._results == 1 else self._spell_all(keys, ids, lengths)

    def _run(self) -> list[str]:
        """Return the keys, ids and lengths of the best finished paths."""
        graph, group = self._graph, self._group
        memories = {one.link_name: boot(self._call, group, one, self._batch) for one in group.record.memories}
        spread = {name: self._repeat(one) for name, one in memories.items()}
        carried = [
            one for one in group.record.memories if not is_static(group, one) and one.layer_name != self._predicted
        ]
        for memory in carried:
            refuse_sequence(memory, spread[memory.link_name])
        body = graph.inner()
        number = body.input(body.new_name("number"), INT64, [])
        body.input(body.new_name("goes_on"), BOOL, [])
        first = self._first_beam([spread[one.link_name] for one in group.record.memories if self._is_word(one)])
        shapes = zip(_Beam.KINDS, _Beam.RANKS, strict=True)
        beam = _Beam(*(body.input(body.new_name("beam"), kind, [None] * rank) for kind, rank in shapes))
        values = {one.link_name: spread[one.link_name] for one in group.record.memories if is_static(group, one)}
        for memory in group.record.memories:
            if self._is_word(memory):
                values[memory.link_name] = replace(spread[memory.link_name], name=beam.words)
        for memory in carried:
            name = body.input(body.new_name("state"), FLOAT, [None, None])
            values[memory.link_name] = replace(spread[memory.link_name], name=name)
        outputs = self._call.run(body, self._step(carried), values)
        after, parents = _Step(self, body, number, beam).extend(outputs[self._probabilities].name)
        states = [body.add("Gather", outputs[one.layer_name].name, parents) for one in carried]
        top = body.add("ReduceMax", after.keys, axes=[-1, -2], keepdims=0)
        body.output(body.add("Greater", top, graph.constant(NONE)), BOOL, [])
        for name, kind, rank in zip(after.names(), _Beam.KINDS, _Beam.RANKS, strict=True):
            body.output(body.add("Identity", name), kind, [None] * rank)
        for name in states:
            body.output(name, FLOAT, [None, None])
        found = graph.add_several(
            "Loop",
            graph.integers(self._most),
            graph.constant(True, np.bool_),
            *first.names(),
            *(spread[one.link_name].name for one in carried),
            outputs=len(_Beam.KINDS) + len(carried),
            body=body.to_proto(graph.new_name("step")),
        )
        return found[3:6]

    def _is_word(self, memory: MemoryConfig) -> bool:
        return not is_static(self._group, memory) and bool(memory.layer_name == self._predicted)

    def _step(self, carried: Sequence[MemoryConfig]) -> ModelConfig:
        """Return the layers of a step without the choice of the ids."""
        step = ModelConfig()
        step.CopyFrom(self._group.step)
        del step.output_layer_names[:]
        step.output_layer_names.extend(dict.fromkeys([self._probabilities, *(one.layer_name for one in carried)]))
        return step

    def _repeat(self, one: Value) -> Value:
        """Return a memory with a row, or a sequence, for each place of each sample: (batch * K, ...)."""
        if one.levels > 1:
            raise CannotExportError("a group that generates reads nested sequences")
        graph = self._graph

        def repeat(name: str) -> str:
            rest = graph.add("Shape", name, start=1)
            shape = graph.add("Concat", self._batch, graph.integers([self._width]), rest, axis=0)
            wide = graph.add("Expand", unsqueeze(graph, name, 1), shape)
            return graph.add("Reshape", wide, graph.add("Concat", graph.integers([-1]), rest, axis=0))

        return replace(one, name=repeat(one.name), lengths=repeat(one.lengths) if one.lengths else "")

    def _first_beam(self, words: Sequence[Value]) -> _Beam:
        """Return the beam before the first step: one empty path for each sample."""
        graph = self._graph

        def fill(values: str, *shape: int) -> str:
            return graph.add("Expand", values, graph.add("Concat", self._batch, graph.integers(shape), axis=0))

        nothing, zero = graph.constant([[NONE]]), graph.integers([[0]])
        zeros = graph.integers([[[0]]])
        return _Beam(
            keys=fill(graph.constant([[0.0, *[NONE] * (self._width - 1)]]), self._width),
            ids=fill(zeros, self._width, self._most),
            words=words[0].name if words else graph.reshape(fill(zero, self._width), [-1]),
            best_keys=fill(nothing, self._results),
            best_ids=fill(zeros, self._results, self._most),
            best_lengths=fill(zero, self._results),
            finished=fill(nothing, 1),
        )

    # ----- The results -----

    def _spell_one(self, keys: str, ids: str, lengths: str) -> Value:
        """Return the ids of the best path of each sample, which is a sequence."""
        graph = self._graph
        kept = graph.add("Greater", keys, graph.constant(NONE))
        count = graph.squeeze(graph.add("Where", kept, lengths, graph.integers(0)), 1)
        return Value(graph.squeeze(ids, 1), self._call.size, is_ids=True, lengths=count)

    def _spell_all(self, keys: str, ids: str, lengths: str) -> Value:
        """Return for each result of a sample the number of ids, the ids and -1, and the scores as a further output."""
        graph, end = self._graph, self._most + 2
        kept = graph.add("Greater", keys, graph.constant(NONE))
        places = graph.integers(list(range(end)))
        last = unsqueeze(graph, graph.add("Add", lengths, graph.integers(1)), -1)
        numbers = unsqueeze(graph, lengths, -1)
        spelled = graph.add("Concat", numbers, ids, graph.add("Sub", numbers, numbers), axis=2)
        spelled = graph.add("Where", graph.add("Equal", places, last), graph.integers(-1), spelled)
        there = graph.add("And", graph.add("LessOrEqual", places, last), unsqueeze(graph, kept, -1))
        # the existing numbers first, in their order
        there = graph.reshape(there, [0, -1])
        width = self._results * end
        order = graph.add(
            "Add",
            graph.add("Where", there, graph.integers(0), graph.integers(width)),
            graph.integers(list(range(width))),
        )
        order = graph.add_several("TopK", order, graph.integers([width]), outputs=2, axis=1, largest=0)[1]
        found = take_frames(graph, graph.reshape(spelled, [0, -1]), order)
        scores = graph.add("Where", graph.add("Greater", keys, graph.constant(LOWEST)), keys, graph.constant(NONE))
        extras = {SCORES: Value(scores, self._results)}
        return Value(found, self._call.size, True, count_frames(graph, there), extras=extras)


class _Step:
    """The nodes of a step after its layers: which ids extend which paths."""

    def __init__(self, search: _Search, body: Graph, number: str, beam: _Beam) -> None:
        self._search = search
        self._body = body
        self._number = number
        self._beam = beam

    def extend(self, p: str) -> tuple[_Beam, str]:
        """Return the beam after the step, and the row of the step of each unfinished path.

        Shapes: p: (batch * K, vocabulary); the rows: (batch * K,).
        """
        search, body, beam = self._search, self._body, self._beam
        keys, ids = self._find_candidates(p)
        is_last = body.add("GreaterOrEqual", self._number, body.integers(search._most - 1))
        ends = body.add("Or", body.add("Equal", ids, body.integers(search._eos)), is_last)
        nothing, width = body.constant(NONE), body.integers([search._width])
        going_on, picked = body.add_several("TopK", body.add("Where", ends, nothing, keys), width, outputs=2, axis=1)
        ended, picked_ended = body.add_several("TopK", body.add("Where", ends, keys, nothing), width, outputs=2, axis=1)
        parents, words, longer = self._append(ids, picked)
        _, _, finished_ids = self._append(ids, picked_ended)
        lengths = body.add("Expand", body.add("Add", self._number, body.integers([1])), body.add("Shape", ended))
        best = self._merge(ended, finished_ids, lengths)
        finished = body.add("Concat", beam.finished, ended, axis=1)
        going_on, best_keys, finished = self._prune(going_on, best[0], finished)
        after = _Beam(going_on, longer, body.reshape(words, [-1]), best_keys, best[1], best[2], finished)
        return after, parents

    def _find_candidates(self, p: str) -> tuple[str, str]:
        """Return the keys and the last ids of all extended paths, (batch, K * ways)."""
        search, body = self._search, self._body
        best = body.add_several("TopK", p, body.integers([search._ways]), outputs=2, axis=1)[1]
        gains = body.add("GatherElements", body.add("Log", p) if search._is_logarithmic else p, best, axis=1)
        shape = [-1, search._width, search._ways]
        before = unsqueeze(body, self._beam.keys, 2)
        keys = body.add("Max", body.add("Add", before, body.reshape(gains, shape)), body.constant(LOWEST))
        nothing = body.constant(NONE)
        keys = body.add("Where", body.add("Greater", before, nothing), keys, nothing)
        flat = [-1, search._width * search._ways]
        return body.reshape(keys, flat), body.reshape(best, flat)

    def _append(self, ids: str, picked: str) -> tuple[str, str, str]:
        """Return the row of each picked path before the step, its new id, and all of its ids.

        Shapes: ids: (batch, K * ways), picked: (batch, K) -> (batch * K,), (batch, K), (batch, K, M).
        """
        search, body = self._search, self._body
        samples = body.range(picked, 0)
        begins = unsqueeze(body, body.add("Mul", samples, body.integers(search._width)), 1)
        place = body.add("Div", picked, body.integers(search._ways))
        parents = body.reshape(body.add("Add", place, begins), [-1])
        words = body.add("GatherElements", ids, picked, axis=1)
        before = take_frames(body, self._beam.ids, place)
        here = body.add("Equal", body.integers(list(range(search._most))), self._number)
        return parents, words, body.add("Where", here, unsqueeze(body, words, 2), before)

    def _merge(self, keys: str, ids: str, lengths: str) -> tuple[str, str, str]:
        """Return the best finished paths with those of this step: their keys, ids and lengths."""
        search, body, beam = self._search, self._body, self._beam
        every = body.add("Concat", beam.best_keys, keys, axis=1)
        best, picked = body.add_several("TopK", every, body.integers([search._results]), outputs=2, axis=1)
        longest = body.add("GatherElements", body.add("Concat", beam.best_lengths, lengths, axis=1), picked, axis=1)
        return best, take_frames(body, body.add("Concat", beam.best_ids, ids, axis=1), picked), longest

    def _prune(self, going_on: str, best: str, finished: str) -> tuple[str, str, str]:
        """Drop finished paths that score below all unfinished ones, and stop the samples that are done."""
        body, nothing, most = self._body, self._body.constant(NONE), self._body.constant(np.inf)
        top = body.add("ReduceMax", going_on, axes=[1], keepdims=1)
        exists = body.add("Greater", going_on, nothing)
        least = body.add("ReduceMin", body.add("Where", exists, going_on, most), axes=[1], keepdims=1)
        bar = body.add("Where", body.add("Greater", top, nothing), least, nothing)
        best, finished = (
            body.add("Where", body.add("GreaterOrEqual", one, bar), one, nothing) for one in (best, finished)
        )
        kept = body.add("Greater", finished, nothing)
        worst = body.add("ReduceMin", body.add("Where", kept, finished, most), axes=[1], keepdims=1)
        are_many = body.add(
            "GreaterOrEqual", count_frames(body, kept, keepdims=True), body.integers(self._search._width)
        )
        done = body.add("And", are_many, body.add("GreaterOrEqual", worst, top))
        return body.add("Where", done, nothing, going_on), best, finished
