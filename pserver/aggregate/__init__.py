"""How the gradients of several trainers become optimiser steps.

elastic_rounds               synchronous rounds in two phases, whose trainers come and go
sync_dense, sync_sparse      synchronous rounds: the gradients of all trainers are added, then one step is taken
async_dense, async_sparse    asynchronous training: every gradient is a step of its own
round_agreement              what a trainer of an elastic job does so that a round counts on all services or on none
staleness                    which gradients of late trainers are discarded in asynchronous training
"""
