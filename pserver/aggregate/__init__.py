"""Turn the gradients of several trainers into optimiser steps.

elastic_rounds               synchronous rounds in two phases, for trainers that join and leave
sync_dense, sync_sparse      synchronous rounds: the gradients of all trainers are added, then one step is taken
async_dense, async_sparse    asynchronous training: every gradient is a separate step
round_agreement              how the trainers of an elastic job make a round count on all services or on none
staleness                    which gradients of slow trainers are discarded in asynchronous training
"""
