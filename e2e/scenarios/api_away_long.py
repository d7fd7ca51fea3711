"""The API server is away for five minutes (see `api_away`)."""

from . import api_away


def run(context):
    return api_away.run(context, seconds=300)
