"""Answers over HTTP: the application, the batching of requests, the page."""
