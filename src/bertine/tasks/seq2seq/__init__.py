"""Text to text: a text is read and another one written."""
