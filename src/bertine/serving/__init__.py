"""Serve models over HTTP: the application, the batching of requests, the pages."""
