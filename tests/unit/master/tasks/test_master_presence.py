"""Members' numbers, and the view of those that have a task, each rule by an example."""

import pytest
from master_story import Story, member

from paddle_cluster.master.tasks.events import FAILED, RETURNED, MemberIn
from paddle_cluster.master.tasks.presence import BETWEEN_S, COUNTER_BITS, Presence
from paddle_cluster.master.tasks.records import TaskView


def members(story: Story) -> tuple[int, ...]:
    """The present view, which every member was told."""
    view = story.state.presence.view
    assert not story.views or story.views[-1] == (view.epoch, view.members)
    return view.members


# ----- Numbers


def test_members_have_numbers_in_order_of_joining() -> None:
    story = Story(1)
    story.join("b", "a", "c")
    assert story.numbers == {member("b"): 0, member("a"): 1, member("c"): 2}


def test_a_member_that_is_back_keeps_its_number_and_a_later_incarnation_gets_another() -> None:
    story = Story(1)
    story.join("a", "b")
    story.leave("a")
    story.join("c", "a")
    assert story.numbers == {member("a"): 0, member("b"): 1, member("c"): 2}
    story.join("a", incarnation=2)
    assert story.numbers[member("a", 2)] == 3


def test_a_number_is_not_given_again_by_a_later_leader() -> None:
    story = Story(1)
    story.join("a", "b")
    story.leave("b")
    story.restart()
    story.join("c", "b")
    assert story.numbers == {member("a"): 0, member("b"): 1, member("c"): 2}


def test_a_number_of_a_leader_that_died_before_the_member_was_stored_stays_its() -> None:
    story = Story(1)
    story.dies_after = 1
    story.join("a")
    assert "member/a" not in story.pairs and "number/a" in story.pairs
    story.join("b", "a")
    assert story.numbers == {member("b"): 1, member("a"): 0}


def test_a_process_whose_place_was_taken_is_refused_also_when_the_other_one_has_gone() -> None:
    """It knows that it had a number; the incarnation does not show it, because a clock may be set back."""
    story = Story(1)
    story.join("a", incarnation=2)
    story.cut("a", 2)
    story.join("a", incarnation=1)
    story.happen(MemberIn(member("a", 2), is_new=False))
    assert story.refused == [(member("a", 2), "replaced")]
    story.restart()
    story.advance(10.0)
    assert not story.state.members
    story.happen(MemberIn(member("a", 2), is_new=False))
    assert story.refused[1:] == [(member("a", 2), "replaced")]


@pytest.mark.parametrize("other", [2, 0], ids=["a later start", "an earlier start by a clock that was set back"])
def test_a_restarted_trainer_takes_its_place_at_once(other: int) -> None:
    """With a clock that was set back, the master refused the trainer for ever."""
    story = Story(1)
    story.join("a", incarnation=1)
    story.cut("a", 1)
    story.join("a", incarnation=other)
    assert story.numbers[member("a", other)] == 1 and not story.refused
    assert [one.id for one in story.state.members.values()] == [member("a", other)]


def test_a_second_trainer_gets_no_place_of_a_trainer_that_a_new_leader_still_expects() -> None:
    """The child of a trainer took its place when it was the first of the two that the new leader heard."""
    story = Story(1)
    story.join("a")
    story.restart()
    story.happen(MemberIn(member("a", 2)))
    assert story.refused == [(member("a", 2), "held")]
    story.happen(MemberIn(member("a"), is_new=False))
    assert story.numbers == {member("a"): 0}
    story.cut("a")
    story.restart()
    story.advance(10.0)
    story.join("a", incarnation=2)
    assert story.numbers[member("a", 2)] == 1


# ----- Views


def test_a_member_is_in_the_view_from_its_first_task_until_it_has_to_wait() -> None:
    story = Story(3)
    story.join("a", "b")
    assert members(story) == ()
    first = story.take("a")
    assert members(story) == (0,)
    second = story.take("b")
    assert members(story) == (0, 1)
    epoch = story.state.presence.view.epoch
    story.report("a", first)
    third = story.take("a")
    assert members(story) == (0, 1) and story.state.presence.view.epoch == epoch, "from task to task nothing changes"
    story.report("b", second)
    assert members(story) == (0, 1)
    assert story.get("b") == "waits"
    assert members(story) == (0,)
    story.report("a", third, FAILED)
    assert members(story) == (0, 1), "b gets the task, and a may ask for another one"


def test_a_member_that_gives_its_task_back_is_out_at_once() -> None:
    story = Story(1)
    story.join("a")
    story.report("a", story.take("a"), RETURNED)
    assert members(story) == ()


def test_the_end_of_a_pass_takes_a_member_out_until_it_has_a_task_of_the_next_one() -> None:
    """It may save or test first, and nobody waits for that."""
    story = Story(1, num_passes=2)
    story.join("a")
    story.report("a", story.take("a"))
    assert members(story) == (0,)
    assert story.get("a")["state"] == "pass_end"
    assert members(story) == ()
    story.take("a", 1)
    assert members(story) == (0,)


def test_a_member_that_does_not_ask_for_its_next_task_is_not_waited_for() -> None:
    story = Story(2)
    story.join("a")
    story.report("a", story.take("a"))
    story.advance(BETWEEN_S - 0.1)
    assert members(story) == (0,)
    story.advance(0.1)
    assert members(story) == ()


def test_a_finish_that_is_said_again_does_not_bring_a_member_back() -> None:
    story = Story(2)
    story.join("a", "b")
    first, _ = story.take("a"), story.take("b")
    story.report("a", first)
    story.get("a")
    story.report("a", first)
    assert members(story) == (1,)


def test_a_member_whose_time_is_over_is_out() -> None:
    story = Story(1, time_least=5.0, time_most=5.0)
    story.join("a", "b")
    story.take("a")
    story.want("b")
    story.advance(5.1)
    assert members(story) == (1,)


def test_nobody_waits_for_a_member_whose_connection_is_lost() -> None:
    """Until its lease has ended, a round of a trainer that was killed had stood still."""
    story = Story(3, member_ttl=6.0)
    story.join("a", "b")
    story.report("a", story.take("a"))
    story.take("b")
    story.cut("a")
    story.cut("b")
    assert members(story) == ()
    story.advance(2.9)
    story.join("b")
    assert members(story) == (1,) and story.counts[2] == 1, "it is back, and has its task still"
    story.join("a")
    assert members(story) == (0, 1), "it is between two tasks"
    story.cut("b")
    story.join("c")
    story.advance(3.0)
    assert members(story) == () and story.counts[2] == 0
    story.join("b")
    assert members(story) == (), "its task has gone back with its lease"


def test_epochs_grow_from_leader_to_leader() -> None:
    story = Story(3)
    story.join("a", "b")
    story.take("a"), story.take("b")
    before = story.state.presence.view
    story.restart()
    after = story.state.presence.view
    assert after.members == before.members == (0, 1)
    assert after.epoch > before.epoch
    assert after.epoch >> COUNTER_BITS == story.leader


def test_the_epochs_of_a_leader_end_before_those_of_the_next_one() -> None:
    presence = Presence(1)
    presence.view = TaskView((2 << COUNTER_BITS) - 3, ())
    presence.report(member("a"), 0.0)
    assert presence.settle(lambda _: False, lambda _: 0) and not presence.is_exhausted
    presence.want(member("a"))
    assert presence.settle(lambda _: False, lambda _: 0) and presence.is_exhausted
    assert presence.view.epoch < Presence(2).view.epoch
