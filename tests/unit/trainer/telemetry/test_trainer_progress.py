"""How far a run is, and the line that says it."""

from trainer.telemetry.progress import Progress


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_the_first_pass_counts_samples_and_the_second_knows_its_share():
    clock = Clock()
    progress = Progress(3, clock=clock)
    progress.start_pass(0)
    clock.now += 10
    progress.add(600)
    progress.add(400)
    assert progress.look().text(300.0) == "progress: pass 1 of 3, 1000 samples, 300 samples/s"
    clock.now += 5
    progress.add(1000)
    progress.finish_pass(2000)
    assert progress.look().text(200.0) == (
        "progress: pass 1 of 3, 100% of the pass, 33% of the job, 200 samples/s, 0:00:30 left"
    )
    progress.start_pass(1)
    clock.now += 10
    progress.add(500)
    # 2500 samples in 25 s: 1500 of this pass and 2000 of the last are left
    place = progress.look()
    assert (place.samples_per_second, place.pass_fraction, place.seconds_left) == (50.0, 0.25, 35.0)
    assert abs(place.job_fraction - 1.25 / 3) < 1e-12


def test_a_run_that_goes_on_knows_the_pass_of_the_run_before():
    clock = Clock()
    progress = Progress(10, pass_samples=400, clock=clock)
    progress.start_pass(4, samples=100)
    clock.now += 2
    progress.add(100)
    place = progress.look()
    assert (place.pass_fraction, place.job_fraction, place.seconds_left) == (0.5, 0.45, (200 + 5 * 400) / 50)


def test_long_times_have_hours():
    clock = Clock()
    progress = Progress(100, clock=clock)
    progress.start_pass(0)
    clock.now += 100
    progress.add(10)
    progress.finish_pass(10)
    assert progress.look().text(1.0).endswith(", 2:45:00 left")


def test_a_pass_that_grows_is_never_over_its_end():
    clock = Clock()
    progress = Progress(2, clock=clock)
    for number, samples in enumerate((10, 30)):
        progress.start_pass(number)
        clock.now += 10
        progress.add(samples)
        place = progress.look()
        progress.finish_pass(samples)
    assert (place.pass_fraction, place.job_fraction, place.seconds_left) == (1.0, 1.0, 0.0)
