"""What is removed from texts of other programs."""

from paddle_base.runtime.network.redaction import MOST_SECRETS, Secrets, redact_bytes

SECRET = 'a "secret" with \\ and \u4e2d'


def test_every_form_of_a_secret_is_removed() -> None:
    secrets = Secrets()
    secrets.keep(SECRET)
    text = f'{SECRET} {SECRET!r} a \\"secret\\" with \\\\ and \\u4e2d'
    assert secrets.redact(text) == "<token> '<token>' <token>"
    assert redact_bytes(text.encode(), SECRET) == b"<token> '<token>' <token>"


def test_the_last_secrets_are_known() -> None:
    secrets = Secrets()
    names = [f"secret-{number:03}" for number in range(MOST_SECRETS + 1)]
    for name in names:
        secrets.keep(name)
    assert secrets.redact(names[0]) == names[0]
    assert {secrets.redact(name) for name in names[1:]} == {"<token>"}


def test_an_empty_secret_removes_nothing() -> None:
    secrets = Secrets()
    secrets.keep("")
    assert secrets.redact("text") == "text" and redact_bytes(b"text", "") == b"text"
