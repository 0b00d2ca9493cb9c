"""Who saves the model of a pass, and who does when that trainer does not (rule 7)."""

import pytest
from master_story import Story

from paddle_cluster.master.tasks.events import BUSY, FAILED, GRANTED, SAVED


def passed(num_passes: int = 1, **settings: object) -> Story:
    """A job whose first pass has ended; a, b and c have joined."""
    story = Story(1, num_passes=num_passes, **settings)
    story.join("a", "b", "c")
    story.finish_all("a", 0, 1)
    return story


@pytest.mark.parametrize("skew", [-600.0, 600.0], ids=["behind", "ahead"])
def test_the_clock_of_a_new_leader_neither_ends_nor_prolongs_what_the_earlier_one_granted(skew: float) -> None:
    """A leader whose clock was ahead let a second trainer save while the first one did, and one behind let nobody save
    for ten minutes after the first one was late."""
    story = passed(2, time_least=1.0, time_most=60.0)
    task = story.take("b", 1)
    assert story.save("a", block=20.0) == GRANTED
    story.now += skew
    story.restart()
    story.join("a", "b")
    assert story.save("b") == BUSY
    story.advance(15.0)
    assert story.save("b") == BUSY
    story.advance(5.0)
    assert story.save("b") == GRANTED
    assert story.report("b", task) is True and story.state.estimate.mean <= 60.0


def test_one_trainer_saves_and_the_others_hear_whether_it_has() -> None:
    story = passed(2)
    assert [story.save(name) for name in "aba"] == [GRANTED, BUSY, GRANTED]
    story.restart()
    assert story.save("b") == BUSY
    assert story.saved("a")
    assert [story.save(name) for name in "ab"] == [SAVED, SAVED]
    story.restart()
    assert story.save("b") == SAVED
    assert story.counts == (1, 1, 0, 0, 0), "meanwhile the next pass is under way"


def test_a_model_is_saved_when_its_pass_has_ended_and_before_the_next_one_has() -> None:
    story = passed(3)
    assert story.save("a", 1) == "pass"
    story.finish_all("a", 1, 1)
    assert story.save("b", 0) == SAVED, "it would be the model of the pass after that"
    assert story.save("b", 1) == GRANTED
    assert story.save("d", 1) == "member"
    assert Story().save("a") == "member"


@pytest.mark.parametrize("lost", ["its time is over", "its lease has ended", "it leaves", "it began anew"])
def test_another_trainer_saves_when_the_first_one_does_not(lost: str) -> None:
    story = passed()
    assert story.save("a", block=60.0) == GRANTED
    assert story.save("b") == BUSY
    waiting = story.want("b", 1, patience=500.0)
    story.advance(1.0)
    assert waiting not in story.answers, "it waits for the end of the job"
    if lost == "its time is over":
        story.advance(60.1)
    elif lost == "its lease has ended":
        story.cut("a")
        story.advance(10.0)
    elif lost == "it leaves":
        story.leave("a")
    else:
        story.join("a", incarnation=2)
    story.advance(0.1)
    assert story.answers[waiting] == {"state": "pass_end", "pass": 1, "task": None, "reason": ""}
    assert story.save("b") == GRANTED
    assert story.saved("a") is False
    waiting = story.want("c", 1)
    assert story.saved("b") and story.saved("b"), "an answer that was lost is given again"
    assert story.answers[waiting]["state"] == "done"
    assert story.state.is_over


def test_a_pass_within_the_job_is_saved_by_another_trainer_when_the_first_one_is_lost() -> None:
    story = Story(2, num_passes=3)
    story.join("a", "b", "c")
    story.finish_all("a", 0, 2)
    assert story.save("a", block=60.0) == GRANTED
    first, second = story.take("b", 1), story.take("c", 1)
    waiting = story.want("a", 1)
    assert waiting not in story.answers, "all tasks are given, and the pass is being saved"
    story.leave("a")
    story.report("b", first)
    ended = {"state": "pass_end", "pass": 1, "task": None, "reason": ""}
    assert story.get("b", 1) == ended, "it goes on with pass 1 when it has saved pass 0"
    assert story.save("b") == GRANTED
    assert story.saved("b")
    assert story.get("b", 1) == "waits"
    story.report("c", second)
    assert story.counts == (2, 2, 0, 0, 0)


def test_a_pass_that_ends_while_another_one_is_saved_is_saved_then() -> None:
    story = passed(4)
    assert story.save("a", block=60.0) == GRANTED
    story.finish_all("b", 1, 1)
    assert story.save("b", 1) == BUSY
    story.report("b", story.take("b", 2))
    assert story.saved("a"), "of pass 0"
    assert story.get("c", 3)["state"] == "pass_end"
    assert story.save("c", 2) == GRANTED and story.saved("c", 2)
    assert story.notes[-2:] == [
        "the model of pass 1 is not saved, because a later pass has ended",
        "c.1 has saved the model of pass 2",
    ]


def test_a_job_waits_for_a_trainer_that_saves_its_last_pass() -> None:
    story = passed()
    for name in "abc":
        story.leave(name)
    story.advance(1000.0)
    story.restart()
    assert not story.state.is_over
    story.join("d")
    assert story.get("d")["pass"] == 1
    assert story.save("d") == GRANTED and story.saved("d")
    assert story.state.is_over


def test_a_leader_that_dies_while_the_model_is_saved_goes_on_with_that() -> None:
    story = passed()
    assert story.save("a", block=60.0) == GRANTED
    story.restart()
    waiting = story.want("b", 1)
    story.join("a", "b")
    assert waiting not in story.answers
    assert story.saved("a")
    assert story.state.is_over


def test_a_job_that_has_failed_has_no_model_to_save() -> None:
    story = Story(1, failures_max=0)
    story.join("a")
    story.report("a", story.take("a"), FAILED)
    assert story.save("a") == "pass"
