"""The config helpers of 2017: what a config imports from paddle.trainer_config_helpers."""
