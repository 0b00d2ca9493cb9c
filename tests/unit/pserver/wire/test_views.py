"""Notes of elastic rounds: what goes out comes back, and what is none is refused by the name of its field."""

import pytest
from each import each
from fuzz import frames
from hypothesis import given
from hypothesis import strategies as st

from paddle_base.runtime.errors import BugError, LostPeerError
from pserver.client.heartbeat import error_of
from pserver.server.trainer_session import make_error
from pserver.wire import notes, protocol, views
from pserver.wire.views import EnterAnswer, EpochChangedError, MembershipView, RoundKey

KEY = st.builds(RoundKey, st.integers(1, views.MAX_EPOCH), st.integers(1, views.MAX_EPOCH))
VIEW = st.builds(
    MembershipView,
    st.integers(1, views.MAX_EPOCH),
    st.sets(st.integers(0, views.MAX_NUMBER), max_size=9).map(lambda some: tuple(sorted(some))),
)


def travel(note):
    return notes.parse(notes.dump(note))


@given(VIEW, KEY, st.integers(0, views.MAX_PASS), st.none() | KEY, st.none() | KEY)
def test_what_is_written_is_read(view, key, number, prepared, own):
    assert views.read_view(travel(views.write_view(view))) == view
    push = travel(views.write_push(key, number))
    assert (views.read_key(push), views.read_pass(push)) == (key, number)
    assert views.read_key(travel(views.write_commit(key, view.epoch))) == key
    answer = EnterAnswer(key, prepared, own)
    assert views.read_answer(travel(views.write_answer(answer))) == answer


def test_the_largest_view_fits_into_a_note():
    first = views.MAX_NUMBER + 1 - views.MAX_MEMBERS
    largest = MembershipView(views.MAX_EPOCH, tuple(range(first, first + views.MAX_MEMBERS)))
    assert len(notes.dump(views.write_view(largest))) < protocol.SMALL_NOTE_BYTES


@each(
    "note, part",
    [
        ({}, "epoch is None"),
        ({"epoch": 0, "members": []}, "epoch is 0"),
        ({"epoch": 1 << 63, "members": []}, "not a whole number from 1"),
        ({"epoch": True, "members": []}, "epoch is True"),
        ({"epoch": 1, "members": {}}, "not a list of"),
        ({"epoch": 1, "members": [1, 0]}, "contain 0 after 1"),
        ({"epoch": 1, "members": [1, 1]}, "contain 1 after 1"),
        ({"epoch": 1, "members": [-1]}, r"members\[0\] is -1"),
        ({"epoch": 1, "members": [0.5]}, r"members\[0\] is 0.5"),
        ({"epoch": 1, "members": [1 << 31]}, r"members\[0\] is 2147483648"),
        ({"epoch": 1, "members": list(range(4097))}, "at most 4096"),
    ],
)
def test_a_view_that_is_none_is_refused_by_its_field(note, part):
    with pytest.raises(BugError, match=part):
        views.read_view(note)


def test_no_value_of_any_field_raises_anything_but_a_bug_error():
    for note, read in (
        (views.write_view(MembershipView(1, (0, 1))), views.read_view),
        (views.write_push(RoundKey(1, 1), 0), lambda note: (views.read_key(note), views.read_pass(note))),
        (views.write_answer(EnterAnswer(RoundKey(1, 1))), views.read_answer),
        ({"code": "epoch", "epoch": 1}, views.read_epoch),
    ):
        for text in (text for raw in frames.RAW_VALUES for text in frames.texts_with(note, raw)):
            try:
                read(notes.parse(text))
            except (BugError, notes.NoteError):
                continue
            except Exception as exc:
                raise AssertionError(f"{exc!r} for {text[:200]!r} of {note}") from exc


def test_an_error_of_the_epoch_is_one_on_the_other_side():
    message = make_error(b"s" * 8, 3, 9, EpochChangedError("epoch 5 came", 5))
    error = error_of(message, "pserver a:1")
    assert isinstance(error, EpochChangedError) and error.epoch == 5 and str(error) == "epoch 5 came"
    assert error.exit_code == 75
    other = error_of(make_error(b"s" * 8, 3, 9, LostPeerError("gone")), "pserver a:1")
    assert type(other) is LostPeerError
    # a server that says it wrongly is no reason for another error
    for epoch in (-1, "x", None, 1 << 64, True):
        odd = error_of(message._replace(note={"code": "epoch", "epoch": epoch}), "pserver a:1")
        assert isinstance(odd, EpochChangedError) and odd.epoch == 0
