"""The networks of bench/network_configs in torch: what bench/networks.py measures the trainer against."""
