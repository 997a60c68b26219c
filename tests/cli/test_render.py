"""What is printed, and where."""

from hashlearn.cli.render import fail, printable, say, set_quiet, warn


def test_talk_is_one_line(capsys):
    say("one\ntwo\r\nthree\x1b[2J")
    assert capsys.readouterr() == ("", "hashlearn: one two three\\x1b[2J\n")


def test_quiet_leaves_warnings_and_errors(capsys, monkeypatch):
    monkeypatch.setenv("HASHLEARN_PROGRESS", "1")
    set_quiet(True)
    say("a note")
    warn("a  warning\n in two lines")
    fail("error: a word")
    set_quiet(False)
    say("a note again")
    assert capsys.readouterr().err == (
        "hashlearn: warning: a warning in two lines\nhashlearn: error: a word\nhashlearn: a note again\n"
    )


def test_printable_escapes_what_a_terminal_would_obey():
    assert printable("a\nb\x1b[31m \u202e") == "a\\nb\\x1b[31m \\u202e"
    assert printable("grün\u202f!") == "grün\u202f!"
