"""Control messages between programs over pyzmq: who takes part, what is asked and told. Never used for gradients."""
