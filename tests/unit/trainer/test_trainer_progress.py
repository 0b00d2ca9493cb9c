"""The progress line: when it comes, and what it knows."""

from trainer.progress import Progress


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_the_first_pass_counts_samples_and_the_second_knows_its_share():
    clock = Clock()
    progress = Progress(3, clock)
    progress.start_pass()
    clock.now += 9
    assert progress.add(600) == ""
    clock.now += 1
    assert progress.add(400) == "progress: pass 1 of 3, 1000 samples, 100 samples/s"
    clock.now += 5
    assert progress.add(1000) == ""
    assert progress.finish_pass() == "progress: pass 1 of 3, 100% of the pass, 200 samples/s, 0:00:30 left"
    progress.start_pass()
    clock.now += 10
    # 2500 samples in 25 s: 1500 of this pass and 2000 of the last are left
    assert progress.add(500) == "progress: pass 2 of 3, 25% of the pass, 50 samples/s, 0:00:35 left"


def test_long_times_have_hours():
    clock = Clock()
    progress = Progress(100, clock)
    progress.start_pass()
    clock.now += 100
    progress.add(10)
    assert progress.finish_pass().endswith(", 2:45:00 left")


def test_a_pass_that_grows_is_never_over_its_end():
    clock = Clock()
    progress = Progress(2, clock)
    for samples in (10, 30):
        progress.start_pass()
        clock.now += 10
        line = progress.add(samples)
        progress.finish_pass()
    assert "100% of the pass" in line
    assert line.endswith("0:00:00 left")
