"""The rules of the master, each by an example, and the six faults of the master of 2017, each by its name."""

import pytest
from master_story import Story, member

from paddle_cluster.master.tasks.events import FAILED, GRANTED, RETURNED, DatasetGiven, MemberIn, MemberLeaves
from paddle_cluster.master.tasks.records import Phase

# ----- Rule 2


def test_the_first_list_counts_and_the_same_one_is_welcome_again() -> None:
    story = Story(3)
    assert story.give_dataset(3) == {"state": "known", "next": 3, "pass": 0}
    assert story.give_dataset(4) == "dataset"
    assert story.counts == (0, 3, 0, 0, 0)


def test_another_config_is_refused_where_both_are_known() -> None:
    story = Story()
    assert story.give_dataset(3, "a" * 64)["state"] == "known"
    assert story.give_dataset(3, "b" * 64) == "dataset"
    assert story.give_dataset(3, "")["state"] == "known"


def test_an_empty_list_is_refused() -> None:
    story = Story()
    assert story.ask(lambda ticket: DatasetGiven(ticket, "0" * 64, "", 0, ())) == "empty"
    assert story.state.head is None


# ----- Rule 3


def test_tasks_are_given_in_order_and_each_once() -> None:
    story = Story(3)
    story.join("a", "b")
    assert [story.take("a"), story.take("b"), story.take("a")] == [(0, 1), (1, 1), (2, 1)]
    assert story.get("b") == "waits"


def test_who_waits_too_long_is_told_to_ask_again() -> None:
    story = Story(1)
    story.join("a", "b")
    story.take("a")
    ticket = story.want("b", patience=5.0)
    story.advance(4.9)
    assert ticket not in story.answers
    story.advance(0.2)
    assert story.answers[ticket]["state"] == "wait"


def test_who_waits_for_the_data_set_gets_a_task_of_it() -> None:
    story = Story()
    story.join("a")
    ticket = story.want("a")
    story.give_dataset(2)
    assert story.answers[ticket]["task"]["files"] == ["part-00000"]


def test_a_question_that_comes_again_gets_the_same_task() -> None:
    """The answer was lost with the leader: without this the task would wait for its time limit."""
    story = Story(3)
    story.join("a")
    given = story.get("a", request=7)
    story.restart()
    story.join("a")
    assert story.get("a", request=7)["task"]["id"] == given["task"]["id"]
    assert story.get("a", request=8)["task"]["id"] == 1
    assert story.counts == (0, 1, 2, 0, 0)


def test_a_report_may_ask_for_the_next_task() -> None:
    story = Story(3, num_passes=2)
    story.join("a", "b")
    first, other = story.take("a"), story.take("b")
    answer = story.report_and_want("a", first)
    assert answer["accepted"] and (answer["next"]["task"]["id"], answer["next"]["pass"]) == (2, 0)
    assert len(story.views) == 2, "it is in the view all the time"
    assert story.report_and_want("b", other)["next"]["state"] == "wait", "it does not wait for the answer"
    story.report("a", (2, 1), FAILED)
    answer = story.report_and_want("b", other)
    assert answer["accepted"] and answer["next"]["task"] is not None, "what is said again is right again"
    assert story.report_and_want("b", (2, 2))["next"] == {"state": "pass_end", "pass": 1, "task": None, "reason": ""}


def test_a_report_that_comes_again_brings_the_same_next_task() -> None:
    story = Story(3)
    story.join("a")
    task = story.take("a")
    answer = story.report_and_want("a", task, request=7)
    story.restart()
    story.join("a")
    again = story.report_and_want("a", task, request=7)
    assert again["accepted"] and again["next"]["task"]["epoch"] == answer["next"]["task"]["epoch"] == 1
    assert story.counts == (0, 1, 1, 1, 0)


def test_a_report_that_is_refused_brings_a_next_task_all_the_same() -> None:
    story = Story(2)
    story.join("a", "b")
    task = story.take("a")
    answer = story.report_and_want("b", task)
    assert not answer["accepted"] and answer["next"]["task"]["id"] == 1
    assert story.report_and_want("b", (9, 1)) == "task", "a task that is not there: the whole question is refused"
    story.leave("a")
    answer = story.report_and_want("a", task)
    assert not answer["accepted"] and answer["next"] is None, "a member that has not joined asks again"


def test_a_member_that_has_not_joined_gets_nothing() -> None:
    story = Story(1)
    assert story.get("a") == "member"


def test_a_trainer_of_an_earlier_pass_is_sent_to_the_present_one() -> None:
    story = Story(1, num_passes=3)
    story.join("a", "b")
    story.finish_all("a", 0, 1)
    assert story.get("b", 0)["state"] == "pass_end"
    assert story.get("b", 0)["pass"] == 1


# ----- Rule 4


def test_a_finish_that_is_said_twice_is_accepted_twice_and_counts_once() -> None:
    story = Story(2)
    story.join("a")
    task = story.take("a")
    assert story.report("a", task)
    story.restart()
    assert story.report("a", task)
    assert story.counts == (0, 1, 0, 1, 0)
    assert story.state.table.sums.samples == 10


def test_a_task_that_comes_back_is_given_after_those_that_were_not_given_yet() -> None:
    story = Story(3)
    story.join("a")
    assert story.report("a", story.take("a"), FAILED)
    assert [story.take("a")[0] for _ in range(3)] == [1, 2, 0]


# ----- Rule 5


def test_a_task_with_too_many_failures_is_discarded_for_the_pass_and_named() -> None:
    story = Story(2, failures_max=2, num_passes=2)
    story.join("a", "b")
    good = story.take("b")
    for _ in range(3):
        assert story.report("a", story.take("a"), FAILED)
    assert story.counts == (0, 0, 1, 0, 1)
    assert "task 1 (part-00001) is discarded for pass 0: it has failed 3 times" in story.notes[-1]
    assert story.report("b", good)
    assert story.state.accounts[0].names == ("1 (part-00001)",)
    assert story.counts == (1, 2, 0, 0, 0), "in the next pass it is tried again"


def test_a_lost_connection_costs_nothing_before_the_lease_has_ended() -> None:
    story = Story(1, member_lease=3.0)
    story.join("a")
    task = story.take("a")
    story.cut("a")
    story.advance(2.9)
    story.join("a")
    story.advance(10.0)
    assert story.report("a", task)


def test_a_member_that_is_not_connected_gets_no_task() -> None:
    story = Story(1)
    story.join("a", "b")
    task = story.take("b")
    waiting = story.want("a")
    story.cut("a")
    story.report("b", task, RETURNED)
    assert waiting not in story.answers
    story.join("a")
    story.advance(0.1)
    assert story.answers[waiting]["state"] == "task"


def test_a_process_takes_the_place_of_the_one_before_which_does_not_get_it_again() -> None:
    story = Story(2)
    story.join("a")
    task = story.take("a")
    story.join("a", incarnation=2)
    assert story.counts == (0, 2, 0, 0, 0)
    assert story.report("a", task) is False
    story.happen(MemberIn(member("a", 1), is_new=False))
    assert story.state.members["a"].id == member("a", 2) and story.refused == [(member("a", 1), "replaced")]


# ----- Rule 6


def test_the_job_ends_after_its_passes() -> None:
    story = Story(2, num_passes=2)
    story.join("a", "b")
    waiting = []
    for pass_number in range(2):
        story.finish_all("a", pass_number, 1)
        last = story.take("a", pass_number)
        waiting.append(story.want("b", pass_number))
        story.report("a", last)
    assert [story.answers[ticket]["state"] for ticket in waiting] == ["pass_end", "pass_end"]
    assert [story.answers[ticket]["pass"] for ticket in waiting] == [1, 2]
    assert not story.state.is_over and story.state.head.phase is Phase.SAVING
    assert story.save("a", 1) == GRANTED and story.saved("a", 1)
    assert story.state.head.phase is Phase.DONE
    assert story.get("a", 5)["state"] == "done"
    assert [(one.done, one.dispatches, one.samples) for one in story.state.accounts.values()] == [(2, 2, 20)] * 2


def test_a_pass_in_which_everything_fails_ends_the_job() -> None:
    story = Story(2, failures_max=0, num_passes=3)
    story.join("a")
    for _ in range(2):
        story.report("a", story.take("a"), FAILED)
    assert story.state.head is not None and story.state.head.phase is Phase.FAILED
    answer = story.get("a")
    assert answer["state"] == "failed" and "all 2 tasks of pass 0 have failed" in answer["reason"]


def test_a_leader_that_dies_before_the_end_of_a_pass_is_stored_ends_it_after_all() -> None:
    story = Story(1, num_passes=2)
    story.join("a")
    task = story.take("a")
    head = story.pairs["state"]
    story.report("a", task)
    story.pairs["state"] = head
    del story.pairs["pass/00000000"]
    story.restart()
    assert story.counts == (1, 1, 0, 0, 0)
    assert story.state.accounts[0].samples == 10


# ----- Tasks by rank


def test_task_i_goes_to_the_member_of_rank_i_modulo_their_number() -> None:
    story = Story(7, num_passes=2, ranks=3)
    story.join("a", "b")
    waiting = [story.want("a"), story.want("b")]
    story.join("c", "d")
    assert story.get("d") == "waits"
    assert not any(ticket in story.answers for ticket in waiting), "nobody begins a pass alone"
    assert story.get("c")["task"]["id"] == 2
    assert [story.answers[ticket]["task"]["id"] for ticket in waiting] == [0, 1]
    assert [members for _, members in story.views] == [(0, 1, 2)]
    for name, tasks in (("b", (1, 4)), ("a", (0, 3, 6)), ("c", (2, 5))):
        for number, following in zip(tasks, (*tasks[1:], None), strict=True):
            assert story.report(name, (number, 1))
            if name != "c" or following is not None:
                answer = story.get(name)
                assert (answer["task"]["id"] if isinstance(answer, dict) else None) == following
    assert story.counts[:2] == (1, 7)


def test_a_task_that_comes_back_goes_to_its_rank_again() -> None:
    story = Story(4, ranks=2)
    story.join("a", "b")
    story.want("a")
    first = story.take("b")
    assert first == (1, 1)
    assert story.report("b", first, FAILED)
    assert story.take("b") == (1, 2)


def test_a_pass_by_rank_goes_on_under_another_leader_and_waits_for_a_lost_member() -> None:
    story = Story(4, ranks=2, member_lease=3.0)
    story.join("a", "b")
    story.want("a")
    story.take("b")
    story.restart()
    story.join("a")
    assert story.report("a", (0, 1))
    assert story.take("a") == (2, 1)
    story.advance(4.0)
    story.join("a")
    assert story.report("a", (2, 1))
    story.join("c")
    assert story.take("c") == (1, 2)


# ----- Speculation


def speculating(**settings: object) -> Story:
    """Ten tasks: nine were finished within a second each, the last one is with b."""
    story = Story(10, speculate=True, **settings)
    story.join("a", "b", "c")
    last = [story.take("b")]
    for _ in range(9):
        task = story.take("a")
        story.now += 1.0
        story.report("a", task)
    assert last == [(0, 1)]
    return story


def test_in_the_last_tenth_an_idle_trainer_gets_a_copy_and_the_first_finish_counts() -> None:
    story = speculating()
    assert story.take("c") == (0, 2)
    assert story.get("a") == "waits", "there are at most two copies"
    assert story.report("c", (0, 2))
    assert story.report("b", (0, 1)) is False
    assert story.state.accounts[0].done == 10
    assert story.state.accounts[0].dispatches == 11


def test_a_copy_that_is_lost_leaves_the_first_holder_alone() -> None:
    story = speculating(failures_max=0)
    copy = story.take("c")
    story.report("c", copy, FAILED)
    assert story.counts == (0, 0, 1, 9, 0)
    assert story.report("b", (0, 1))
    assert story.state.head.phase is Phase.SAVING


def test_nobody_gets_a_copy_of_its_own_task_or_of_a_young_one() -> None:
    story = speculating()
    assert story.get("b") == "waits"
    story = speculating()
    story.report("b", (0, 1), RETURNED)
    assert story.take("a") == (0, 2)
    waiting = story.want("c")
    assert waiting not in story.answers
    story.advance(5.0)
    assert story.answers[waiting]["task"]["epoch"] == 3


def test_without_the_flag_there_are_no_copies() -> None:
    story = Story(1)
    story.join("a", "b")
    story.take("a")
    ticket = story.want("b")
    story.advance(20.0)
    assert ticket not in story.answers


# ----- The faults of 2017, by the names of spec/distributed.md 5.3


def test_m1_a_pass_whose_last_task_is_discarded_ends() -> None:
    """Only TaskFinished ended a pass: every trainer waited for ever."""
    story = Story(2, failures_max=0, num_passes=2)
    story.join("a")
    story.finish_all("a", 0, 1)
    story.report("a", story.take("a"), FAILED)
    assert story.counts == (1, 2, 0, 0, 0)


def test_m2_nobody_leaves_a_pass_whose_tasks_may_come_back() -> None:
    """Clients left a pass that had pending tasks; one that came back then was taken by nobody."""
    story = Story(1, num_passes=2)
    story.join("a", "b", "c")
    task = story.take("a")
    first, second = story.want("b"), story.want("c")
    assert first not in story.answers
    story.report("a", task, FAILED)
    assert story.answers[first]["task"]["epoch"] == 2, "first come, first served"
    assert second not in story.answers


def test_m3_a_late_finish_does_not_close_the_next_holders_task() -> None:
    """TaskFinished carried no epoch."""
    story = Story(2, time_most=10.0)
    story.join("a", "b")
    late = story.take("a")
    assert story.report("b", story.take("b"))
    story.advance(10.1)
    now = story.take("b")
    assert now == (late[0], 2)
    assert story.report("a", late) is False
    assert story.counts == (0, 0, 1, 1, 0)
    assert story.report("b", now)


@pytest.mark.parametrize(("seconds", "least", "most"), [(1.0, 3.0, 6.0), (30.0, 60.0, 180.0)])
def test_m5_the_time_limit_follows_how_long_tasks_take(seconds: float, least: float, most: float) -> None:
    """It was 20 minutes for every task, and a frozen trainer stopped the job for that time."""
    story = Story(40, time_least=3.0, time_most=1200.0)
    story.join("a")
    limits = []
    for _ in range(30):
        answer = story.get("a")
        limits.append(answer["task"]["limit"])
        story.now += seconds
        story.report("a", (answer["task"]["id"], answer["task"]["epoch"]))
    assert limits[0] == 1200.0
    assert least <= limits[-1] <= most


def test_m5_a_task_that_needs_longer_than_the_estimate_gets_twice_the_time_again() -> None:
    story = Story(3, time_least=3.0, time_most=100.0)
    story.join("a")
    task = story.take("a")
    story.now += 0.1
    story.report("a", task)
    limits = []
    for _ in range(3):
        limits.append(story.get("a")["task"]["limit"])
        story.take("a")
        story.advance(limits[-1] + 0.1)
    assert limits == [3.0, 6.0, 12.0]


def test_m4_and_m6_the_tasks_of_a_dead_trainer_go_back_when_its_lease_ends() -> None:
    """M4: a task counted as finished when its last record was read. M6: tasks of the dead came back by the time limit
    only, which was 16 seconds, or 20 minutes by default."""
    story = Story(3, member_lease=3.0)
    story.join("a", "b")
    story.take("a"), story.take("a"), story.take("b")
    waiting = story.want("b")
    story.cut("a")
    story.advance(3.1)
    assert story.answers[waiting]["state"] == "task"
    assert story.counts == (0, 1, 2, 0, 0)


def test_m6_the_tasks_of_a_trainer_that_leaves_go_back_at_once_and_are_no_failures() -> None:
    story = Story(2, failures_max=0)
    story.join("a", "b")
    story.take("a"), story.take("a")
    waiting = story.want("b")
    story.leave("a")
    assert story.answers[waiting]["state"] == "task"


def test_m6_a_trainer_that_is_known_to_be_gone_is_not_waited_for() -> None:
    story = Story(1)
    story.join("a")
    story.take("a")
    story.happen(MemberLeaves(None, member("a"), "its pod is deleted", is_polite=False))
    assert story.counts == (0, 1, 0, 0, 0)
    assert story.state.table.current(0).failures == 1


# ----- what was trained and did not count


def test_a_refused_finish_is_in_the_account_as_a_repetition():
    story = Story(2, member_lease=2.0)
    story.join("a", "b")
    first = story.take("a")
    story.cut("a")
    story.advance(3.0)
    assert story.take("b") != first
    again = story.take("b")
    assert again[0] == first[0]
    assert story.report("a", first) is False
    assert story.report("a", first) is False, "the answer was lost"
    assert story.state.table.sums.repeated == 10
    story.report("b", again)
    story.report("b", (1 - again[0], 1))
    account = story.state.accounts[0]
    assert (account.samples, account.repeated, account.dispatches, account.unreported) == (20, 10, 3, 0)


def test_a_dispatch_that_ends_without_a_word_is_named():
    story = Story(1)
    story.join("a", "b")
    story.take("a")
    story.leave("a")
    story.report("b", story.take("b"))
    account = story.state.accounts[0]
    assert (account.repeated, account.dispatches, account.unreported) == (0, 2, 1)


def test_what_a_trainer_gives_back_was_trained_in_part_and_is_no_failure():
    story = Story(1, failures_max=0)
    story.join("a", "b")
    assert story.report("a", story.take("a"), RETURNED)
    assert story.counts == (0, 1, 0, 0, 0)
    story.report("b", story.take("b"))
    assert (story.state.accounts[0].samples, story.state.accounts[0].repeated) == (10, 10)


def test_a_late_report_changes_the_account_of_its_pass():
    story = Story(1, num_passes=2, member_lease=2.0)
    story.join("a", "b")
    late = story.take("a")
    story.cut("a")
    story.advance(3.0)
    story.report("b", story.take("b"))
    story.take("b", 1)
    for _ in range(2):
        assert story.report("a", late, pass_number=0) is False
    story.restart()
    assert story.report("a", late, pass_number=0) is False
    assert (story.state.accounts[0].repeated, story.state.table.sums.repeated) == (10, 0)


def test_a_finish_that_is_said_again_in_the_next_pass_is_no_repetition():
    """Its answer was lost with the leader, and the task had been given anew: the trainer was told it is refused."""
    story = Story(1, num_passes=2)
    story.join("a", "b")
    done = story.take("a")
    assert story.report("a", done)
    story.take("b", 1)
    story.restart()
    assert story.report("a", done, pass_number=0)
    assert story.state.accounts[0].repeated == 0


def test_what_comes_back_keeps_its_place_when_it_is_counted():
    story = Story(3)
    story.join("a", "b", "c")
    tasks = [story.take(name) for name in "abc"]
    for name, task in zip("abc", tasks, strict=True):
        assert story.report(name, task, RETURNED)
    assert story.report("b", tasks[1]) is False
    assert [story.take(name)[0] for name in "abc"] == [task[0] for task in tasks]
