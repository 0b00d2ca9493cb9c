"""What a start record says of a network: what the layers of recurrent groups stand for."""

from paddle.trainer_config_helpers import *
from trainer.config.scripts.parse import parse_network_config
from trainer.telemetry.description import _link_groups


def decoder():
    settings(batch_size=1, learning_rate=0.1)
    words, first = data_layer(name="words", size=4), data_layer(name="first", size=4)

    def step(word, whole):
        before = memory(name="state", size=4, boot_layer=first)
        return fc_layer([word, whole, before], size=4, name="state")

    out = recurrent_group(name="group", step=step, input=[words, StaticInput(words, is_seq=True)])
    outputs(regression_cost(input=last_seq(out), label=first))


def test_agents_name_the_layers_that_they_stand_for():
    sources, memories = _link_groups(parse_network_config(decoder).sub_models)
    static = next(name for name in sources if "memory" in name)
    assert sources == {
        "words@group": ["words"],  # a frame of it in every step
        static: ["words"],  # the whole of it in every step
        "state+delay1@group": ["first"],  # in the first step
        "state": ["state@group"],
    }
    assert memories == {"state+delay1@group": "state@group"}
