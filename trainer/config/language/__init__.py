"""The config helpers of 2017: the names in paddle.trainer_config_helpers."""
