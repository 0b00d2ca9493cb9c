"""The networks of bench/network_configs in torch; bench/networks.py compares the trainer with them."""
