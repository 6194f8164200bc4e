"""Scores of a run as messages, and back."""

from paceline.core.chief.scoring import Score
from paceline.v1 import run_service_pb2 as pb


def score_message(score: Score) -> pb.Score:
    """The score as it is sent."""
    return pb.Score(
        epoch=score.epoch,
        seconds=score.seconds,
        versions=score.versions,
        metrics=score.metrics,
        final=score.final,
        measure=score.measure,
        examples=score.examples,
    )


def score_value(message: pb.Score) -> Score:
    """The score that was sent."""
    return Score(
        message.epoch,
        message.seconds,
        list(message.versions),
        dict(message.metrics),
        message.final,
        message.measure,
        dict(message.examples),
    )
