"""The one exception a user is meant to see."""


class BertineError(Exception):
    """A mistake that the user can mend.

    The message is one line that names the file, row or key and says what to do. The command
    line prints it after ``bertine: error:`` and ends with exit status 2; it never shows a
    traceback for this class.
    """
