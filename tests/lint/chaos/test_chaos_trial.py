"""What the pods of a trial are started with."""

from chaos.trial import make_environment


def test_the_pods_of_a_trial_have_the_variables_of_the_sanitizers():
    """Without them the programs of a job under tests/sanitize cannot load the kernels that it has compiled."""
    environment = make_environment({"ASAN_OPTIONS": "log_path=/somewhere", "HOME": "/root"})
    assert environment["ASAN_OPTIONS"] == "log_path=/somewhere"
    assert environment["PADDLE_PEER_TIMEOUT"] and not {"LD_PRELOAD", "HOME"} & environment.keys()
