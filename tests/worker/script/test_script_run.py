"""What a script says of its run, and in which order; servers that wait until it is said."""

import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from paceline.api import script
from paceline.base.variables import CONNECT
from paceline.core.chief.best_model import Measure
from paceline.core.chief.budget import Budget
from paceline.core.errors import ConfigError, OtherProtocol
from paceline.core.policies.policy import build_policy
from paceline.core.settings.config import Config, Options
from paceline.rpc.protocol_version import PROTOCOL
from paceline.rpc.setting_values import settings_message
from paceline.server.command_line import ToldServer
from paceline.server.description import described
from paceline.server.script_settings import ScriptServicer
from paceline.settings.load_settings import load, write_yaml
from paceline.v1 import script_service_pb2 as pb
from paceline.worker.script import current as of_process
from paceline.worker.script.asked_scores import AskedScores, named
from paceline.worker.script.course import BatchesDone, PresentEpoch

torch = pytest.importorskip("torch")
script_run = pytest.importorskip("paceline.worker.script.script_run")
OwnBatches = pytest.importorskip("paceline.worker.script.course").OwnBatches
alone = pytest.importorskip("paceline.worker.script.alone")
scorer = pytest.importorskip("paceline.worker.script.script_scorer")

GIVEN = "task: train.py\nworkers: 2\nservers: 1\npolicy: bsp\ndata: {source: script}\n"
ASKED = {"optimizer": {"name": "adam", "lr": 0.01}, "epochs": 3, "batch_size": 16}


@pytest.fixture
def given(tmp_path: Path) -> Path:
    (tmp_path / "given.yaml").write_text(GIVEN)
    return tmp_path / "given.yaml"


@pytest.fixture
def told(given: Path) -> Any:
    from paceline.worker.command_line import ToldLaunched

    return ToldLaunched(config=given, servers="127.0.0.1:1", rank=1)


def describe(
    servicer: ScriptServicer, asked: object, worker: str = "worker-0", protocol: int = PROTOCOL
) -> pb.DescribeReply:
    return servicer.Describe(
        pb.DescribeRequest(worker=worker, settings=settings_message(asked), protocol=protocol), None
    )


# servers


def test_the_first_description_is_kept_and_the_same_again_is_welcome(given: Path, tmp_path: Path) -> None:
    servicer = ScriptServicer(ToldServer(config=given, folder=tmp_path), is_ready=False)

    assert not servicer.is_kept.is_set()
    assert not describe(servicer, ASKED).ready
    assert described(tmp_path) == ASKED
    assert servicer.is_kept.is_set(), "who waits for it goes on at once"
    assert servicer.description == ASKED
    assert (
        ScriptServicer(ToldServer(config=given, folder=tmp_path), is_ready=True)
        .Describe(pb.DescribeRequest(worker="worker-1", settings=settings_message(ASKED), protocol=PROTOCOL), None)
        .ready
    )


@pytest.mark.parametrize(
    ("asked", "kind", "said"),
    [
        ({**ASKED, "epochs": 4}, ConfigError, "epochs: 3 before, 4 now"),
        ({**ASKED, "optimizer": {"name": "sgd", "lr": 0.01}}, ConfigError, "optimizer.name: 'adam' before, 'sgd' now"),
        ({**ASKED, "seed": 43}, ConfigError, "Give torch.manual_seed the same number in all of them"),
    ],
)
def test_another_description_is_refused(
    given: Path, tmp_path: Path, asked: dict[str, object], kind: type[Exception], said: str
) -> None:
    servicer = ScriptServicer(ToldServer(config=given, folder=tmp_path), is_ready=False)
    describe(servicer, ASKED)

    with pytest.raises(kind, match=said.replace(".", r"\.")):
        describe(servicer, asked, "worker-1")
    assert described(tmp_path) == ASKED


def test_what_makes_no_run_is_refused_and_not_kept(given: Path, tmp_path: Path) -> None:
    servicer = ScriptServicer(ToldServer(config=given, folder=tmp_path), is_ready=False)

    with pytest.raises(ConfigError, match="epochs"):
        describe(servicer, {**ASKED, "epochs": -1})
    with pytest.raises(OtherProtocol):
        describe(servicer, ASKED, protocol=PROTOCOL + 1)
    assert described(tmp_path) is None
    describe(servicer, ASKED)
    assert described(tmp_path) == ASKED


def test_what_was_given_wins_over_what_the_script_asks(given: Path) -> None:
    given.write_text(GIVEN + "epochs: 7\n")

    config = load(given, {"optimizer": {"lr": 0.5}}, ASKED)

    assert (config.epochs, config.batch_size, config.workers) == (7, 16, 2)
    assert (config.optimizer.name, config.optimizer.options["lr"]) == ("adam", 0.5)


# the script


def model_and_optimizer() -> tuple[Any, dict[str, Any]]:
    return torch.nn.Linear(3, 2), {"name": "sgd", "lr": 0.1}


@pytest.mark.parametrize(("more", "seeds"), [("", (0, 1234, 2**63)), ("seed: 0\n", (0, 0, 0))])
def test_the_seed_is_the_scripts_own_unless_the_user_gives_one(
    told: Any, given: Path, more: str, seeds: tuple[int, ...]
) -> None:
    given.write_text(GIVEN + more)
    run = script_run.ScriptRun(told)
    run.train(*model_and_optimizer(), 1)

    found = []
    for seed in (run.seed, 1234, 2**63):
        torch.manual_seed(seed)
        found.append(run.so_far().seed)
    assert tuple(found) == seeds


def test_a_script_that_has_not_said_all_is_told_what_lacks(told: Any) -> None:
    run = script_run.ScriptRun(told)
    with pytest.raises(ConfigError, match=r"train\.py trains, but never called paceline\.wrap"):
        next(run.steps(5))

    run = script_run.ScriptRun(told)
    run.train(*model_and_optimizer(), 1)
    with pytest.raises(ConfigError, match=r"trains, but never called paceline\.loader"):
        run.join()


def test_the_trainer_of_transformers_is_told_what_to_do(told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(script_run.sys.modules, "transformers.trainer", SimpleNamespace())

    with pytest.raises(ConfigError, match=r"import Trainer from paceline\.transformers instead\.$"):
        script_run.ScriptRun(told).join()


def test_what_comes_twice_is_refused(told: Any) -> None:
    run = script_run.ScriptRun(told)
    run.train(*model_and_optimizer(), 1)
    run.train(*model_and_optimizer(), 1)  # of another optimizer
    with pytest.raises(ConfigError, match="another accumulate"):
        run.train(*model_and_optimizer(), 2)
    run.steps(5)
    with pytest.raises(ConfigError, match="a run has only one length"):
        run.epochs(5)
    with pytest.raises(ConfigError, match="trains on one data set"):
        run.bring(SimpleNamespace())


@pytest.mark.parametrize(
    ("policy", "budget"),
    [("bsp", "per_worker"), ("ssp:2", "per_worker"), ("local_sgd", "per_worker"), ("asp", "total"), ("shat", "total")],
)
def test_workers_that_stay_together_make_their_own_epochs_and_fast_ones_else_take_over(
    given: Path, told: Any, policy: str, budget: str
) -> None:
    given.write_text(GIVEN.replace("policy: bsp", f"policy: {policy}"))
    run = script_run.ScriptRun(told)
    run.epochs(3)
    assert run.so_far().budget == budget

    given.write_text(given.read_text() + "budget: total\n")
    assert run.so_far().budget == "total"


@pytest.mark.parametrize(("policy", "of", "slices"), [("bsp", "mean", "whole"), ("ssp", "push", "memorywise")])
def test_a_gradient_is_clipped_where_a_step_is_on_it(given: Path, told: Any, policy: str, of: str, slices: str) -> None:
    given.write_text(GIVEN.replace("policy: bsp", f"policy: {policy}"))
    run = script_run.ScriptRun(told)
    run.train(*model_and_optimizer(), 1, clip_norm=0.5)

    config = run.so_far()
    assert (config.clip.norm, config.clip.of, config.plan.slices) == (0.5, of, slices)


@pytest.mark.parametrize("policy", ["bsp", "ssp", "asp"])
@pytest.mark.parametrize("count", [1, 23, 2000])
def test_a_run_is_as_long_as_the_script_says(given: Path, told: Any, policy: str, count: int) -> None:
    given.write_text(GIVEN.replace("policy: bsp", f"policy: {policy}"))
    run = script_run.ScriptRun(told)
    run.evaluate(AskedScores.of(dict, 7, None, None))
    run.steps(count)

    config = run.so_far()
    budget = Budget(config)
    budget.agree("worker-0", *agreed_by(OwnBatches(run.workers)))
    assert budget.last_clock(config.policy) is None, "it may step several times for a mini-batch, and ends by itself"
    assert (budget.total, config.evaluate_every) == (2 * count, 7)


def agreed_by(data: Any) -> tuple[int, int, str]:
    """Examples, steps of an epoch and what else workers agree on."""
    manifest = data.manifest
    return manifest.train_examples, max(manifest.epoch_lens), manifest.fingerprint


@pytest.mark.parametrize("count", [0, -1, 2.0, "3"])
def test_a_length_is_a_whole_number_from_1_on(told: Any, count: Any) -> None:
    with pytest.raises(ConfigError, match="whole number"):
        script_run.ScriptRun(told).epochs(count)


@pytest.mark.parametrize("is_alone", [False, True])
def test_bad_evaluations_are_refused(told: Any, is_alone: bool) -> None:
    run = alone.Alone() if is_alone else script_run.ScriptRun(told)
    with pytest.raises(ConfigError, match="a function without arguments"):
        run.evaluate(AskedScores.of(3, 1, None, None))
    with pytest.raises(ConfigError, match="a function without arguments"):
        run.evaluate(AskedScores.of(dict, 0, None, None))
    with pytest.raises(ConfigError, match="patience is 0"):
        run.evaluate(AskedScores.of(dict, 1, None, 0))
    with pytest.raises(ConfigError, match="best is 'f1'"):
        run.evaluate(AskedScores.of(dict, 1, "f1", None))


def test_scores_without_a_better_one_end_the_run_when_patience_is_out() -> None:
    stops: list[str] = []
    waiting = SimpleNamespace(_patience=2, _in_vain=[], _chief=SimpleNamespace(stop=stops.append))

    for epoch, is_better in enumerate((True, False, True, False)):
        waiting._epoch = epoch
        scorer.ScriptScorer.note_score(waiting, is_better, False)
    assert not stops
    waiting._epoch = 4
    scorer.ScriptScorer.note_score(waiting, False, True)  # the last one needs no stop
    assert not stops
    waiting._epoch = 5
    scorer.ScriptScorer.note_score(waiting, False, False)
    assert stops == ["3 scores in a row were no better than the best one"]


def test_scores_of_weights_that_the_run_went_back_from_use_up_no_patience() -> None:
    stops: list[str] = []
    evaluator = object.__new__(scorer.ScriptScorer)
    evaluator._patience, evaluator._in_vain, evaluator._in_force = (
        3,
        [],
        SimpleNamespace(policy=SimpleNamespace(scores=())),
    )
    evaluator._chief, evaluator._scored = SimpleNamespace(stop=stops.append), dict

    for epoch, is_better in ((1, True), (2, False), (3, False), (2, False), (3, False)):
        evaluator.measure(SimpleNamespace(epoch=epoch, final=False))
        evaluator.note_score(is_better, False)
    assert not stops
    evaluator.measure(SimpleNamespace(epoch=4, final=False))
    evaluator.note_score(False, False)
    assert stops == ["3 scores in a row were no better than the best one"]


@pytest.mark.parametrize(("given", "threads"), [(3, [3]), (0, [])])
def test_the_final_score_takes_the_cores_that_no_worker_needs_any_more(
    monkeypatch: pytest.MonkeyPatch, given: int, threads: list[int]
) -> None:
    found: list[int] = []
    monkeypatch.setattr(scorer, "use_threads", found.append)

    scorer.ScriptScorer.hasten(SimpleNamespace(_final_threads=given))

    assert found == threads


def test_scores_go_to_the_split_that_their_names_begin_with() -> None:
    found = scorer.by_split({"accuracy": torch.tensor(0.5), "test_f1": 1, "train_loss": 2.0, "test": 3})
    assert found == {"validation": {"accuracy": 0.5, "test": 3.0}, "test": {"f1": 1.0}, "train": {"loss": 2.0}}
    with pytest.raises(ConfigError, match="gave str as 'loss'"):
        scorer.by_split(named("good", dict)[0])


def accuracy_of_all() -> float:
    return 0.5


@pytest.mark.parametrize(
    ("function", "best", "name", "said"),
    [
        (lambda: 0.5, None, "loss", "one number is taken as the loss: less is better"),
        (accuracy_of_all, None, "accuracy", "one number is taken as the accuracy: more is better"),
        (lambda: 0.5, Measure("max", "f1"), "f1", ""),
    ],
)
def test_a_number_alone_gets_a_name_and_a_guess_is_said_aloud(function: Any, best: Any, name: str, said: str) -> None:
    found, line = named(function(), function, best)
    assert scorer.by_split(found) == {"validation": {name: 0.5}}
    assert (said in line) if said else not line


@pytest.mark.parametrize("has_model", [False, True])
def test_a_worker_that_comes_after_the_end_ends_its_script_unless_it_has_the_final_model(
    told: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], has_model: bool
) -> None:
    """Otherwise what follows the loop would save an untrained model over a good one."""
    run = script_run.ScriptRun(told)
    thread = SimpleNamespace(start=lambda work: None, wait=lambda: None)
    data = SimpleNamespace(dealt=lambda config: None)
    run._complete = lambda: (SimpleNamespace(thread=thread, begins=lambda: None), data, run.settings)
    run._plan.replica = SimpleNamespace(thread=thread)
    run._worker, run._plan.data = SimpleNamespace(has_model=has_model), data

    if has_model:
        assert list(run.epochs(3)) == []
    else:
        with pytest.raises(SystemExit) as ended:
            list(run.epochs(3))
        assert ended.value.code == 0
    assert ("the run was over before this worker could join it" in capsys.readouterr().err) != has_model


@pytest.mark.parametrize(
    ("policy", "found"),
    [
        ("bsp", {"validation": {"loss": 1.0}}),
        ("ensemble", {"validation": {"loss": 1.0}, "mean_validation": {"loss": 5.0}}),
        ("dpsgd", {"validation": {"loss": 5.0}}),
    ],
)
def test_where_local_models_count_their_mean_is_scored_and_kept(policy: str, found: Any) -> None:
    """The global model is 1, the mean of two local ones 5."""
    scoring = object.__new__(scorer.ScriptScorer)
    replica = SimpleNamespace(local=np.ones(1, np.float32), refresh=lambda: None, model=torch.nn.Linear(1, 1))
    scoring._replica = replica
    scoring._in_force = SimpleNamespace(policy=build_policy(Options(name=policy)))
    scoring._locals = SimpleNamespace(mean=lambda peers: (np.full(1, 5, np.float32), len(peers)))
    scoring._evaluate = lambda: float(replica.local[0])
    scoring._measure = None
    scoring._has_told = True
    scoring._is_own = True

    scores, more = scoring.measure(SimpleNamespace(peers=["a:1", "b:2"], epoch=1, final=False))

    assert scores == found
    assert more == ({} if policy == "bsp" else {"local_models": 2})


def scoring_of(found: Any, best: str | None = None) -> Any:
    """A scorer of a script whose function gives this."""
    made = object.__new__(scorer.ScriptScorer)
    made._replica = SimpleNamespace(refresh=lambda: None, model=torch.nn.Linear(1, 1))
    made._evaluate = lambda: found
    made._measure = None if best is None else Measure.parse(best, "best")
    made._has_told = made._is_final = False
    made._is_own = True
    return made


@pytest.mark.parametrize(
    ("found", "best", "said"),
    [
        ({"f1": 0.9}, None, r"gave f1, so that nothing chooses the best model by its loss\. .*best='max f1'\), or min"),
        ({"f1": 0.9, "acc": 0.8}, "max accuracy", r"gave f1, acc, so that .* by its accuracy\. .*best='max f1'"),
        ({}, None, "gave nothing, so that nothing chooses"),
    ],
)
def test_scores_that_choose_no_best_model_are_refused_at_the_first_one(
    found: dict[str, float], best: str | None, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        scoring_of(found, best)._scored()


@pytest.mark.parametrize(
    ("found", "best", "told"),
    [
        ({"f1": 0.9}, "max f1", ""),
        ({"loss": 0.5, "acc": 0.8}, None, ""),
        ({"validation_accuracy": 0.5, "test_f1": 0.8}, None, ""),
        ({"test_loss": 0.5}, None, "all scores are of test data, so these choose the best model"),
    ],
)
def test_scores_that_choose_the_best_model_are_taken_as_they_are(
    found: dict[str, float], best: str | None, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    scoring_of(found, best)._scored()

    out = capsys.readouterr().out
    assert told in out if told else out == ""


def test_a_trained_model_is_not_thrown_away_since_nothing_chooses_the_best_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = scoring_of({"f1": 0.9})
    made._is_final = True

    assert made._scored() == {"validation": {"f1": 0.9}}
    assert "gave f1, so that nothing chooses the best model by its loss." in capsys.readouterr().out


def test_what_paceline_train_scores_needs_nothing_that_chooses(capsys: pytest.CaptureFixture[str]) -> None:
    for found in ({}, {"test_loss": 0.5}):
        made = scoring_of(found)
        made._is_own = False
        made._scored()

    assert capsys.readouterr().out == ""


def test_alone_has_what_a_run_has() -> None:
    def public(kind: type) -> set[str]:
        return {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}

    assert public(alone.Alone) - {"is_alone", "rank", "workers", "seed", "is_over"} <= public(script_run.ScriptRun)


def test_alone_scores_after_every_so_many_epochs_and_the_last(capsys: pytest.CaptureFixture[str]) -> None:
    run = alone.Alone()
    run.evaluate(AskedScores.of(lambda: {"loss": 0.25}, 2, None, None))

    assert list(run.epochs(5)) == [0, 1, 2, 3, 4]
    assert capsys.readouterr().out.splitlines() == [f"epoch {epoch} of 5: loss 0.25" for epoch in (2, 4, 5)]


def test_alone_trains_on_in_the_modes_that_the_model_had(monkeypatch: pytest.MonkeyPatch) -> None:
    run = alone.Alone()
    monkeypatch.setattr(script, "current", lambda: run)
    model = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1))
    model[1].eval()  # a frozen layer
    script.wrap(torch.optim.SGD(model.parameters()), model)
    run.evaluate(AskedScores.of(lambda: {"loss": float(model.eval().training)}, 1, None, None))

    assert [[module.training for module in model] for _ in run.epochs(2)] == [[True, False, True]] * 2


@pytest.mark.parametrize("has_closure", [False, True])
def test_alone_a_step_clips_its_gradients_first(monkeypatch: pytest.MonkeyPatch, has_closure: bool) -> None:
    monkeypatch.setattr(script, "current", alone.Alone)
    weights = torch.nn.Parameter(torch.zeros(2))
    model = torch.nn.ParameterList([weights])
    optimizer = script.wrap(torch.optim.SGD([weights], lr=1.0), model, clip_norm=5.0)

    def compute() -> float:
        weights.grad = torch.tensor([30.0, 40.0])
        return 1.5

    if has_closure:
        assert optimizer.step(compute) == 1.5
    else:
        compute()
        optimizer.step()
    assert weights.tolist() == pytest.approx([-3, -4])


@pytest.mark.parametrize("norm", [0, -1.0, "1", float("nan")])
def test_a_norm_that_limits_nothing_is_refused(monkeypatch: pytest.MonkeyPatch, norm: Any) -> None:
    monkeypatch.setattr(script, "current", alone.Alone)
    model = torch.nn.Linear(1, 1)

    with pytest.raises(ConfigError, match=r"clip_norm is .*; expected a number above 0"):
        script.wrap(torch.optim.SGD(model.parameters()), model, clip_norm=norm)


def test_alone_says_once_what_a_number_is_taken_as(capsys: pytest.CaptureFixture[str]) -> None:
    run = alone.Alone()
    run.evaluate(AskedScores.of(accuracy_of_all, 1, None, None))

    assert list(run.epochs(2)) == [0, 1]
    told, *scores = capsys.readouterr().out.splitlines()
    assert told.startswith("paceline.evaluate: one number is taken as the accuracy")
    assert scores == [f"epoch {epoch} of 2: accuracy 0.5" for epoch in (1, 2)]


# the process


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("{}", "does not say where the run is"),
        ('{"config": "task.yaml", "servers": "a:1"}', "trains the task"),
    ],
)
def test_a_process_that_was_told_something_else_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_yaml(Config(), tmp_path / "task.yaml")
    monkeypatch.setenv(CONNECT, text)
    of_process.current.cache_clear()
    try:
        with pytest.raises(ConfigError, match=said):
            of_process.current()
    finally:
        of_process.current.cache_clear()


def drawn(parts: int, accumulate: int = 1, whole: bool = True, steps: int = 0) -> PresentEpoch:
    """The first epoch of 8 mini-batches, with this number of parts drawn, and of steps made."""
    epoch = PresentEpoch(accumulate)
    epoch.begin(0, 8)
    for _ in range(parts):
        epoch.drew()
    for _ in range(steps):
        epoch.step()
    if whole:
        epoch.drew_all()
    return epoch


def test_an_epoch_after_a_restart_ends_with_the_pass_and_later_ones_are_whole() -> None:
    epoch = PresentEpoch()
    epoch.begin(13, 8)
    assert epoch.end == 16
    epoch.begin(16, 8)
    assert epoch.end == 24
    epoch.begin(19, 8)  # the script broke the last one off
    assert epoch.end == 27


def test_few_steps_that_lack_are_counted() -> None:
    assert drawn(8, steps=6).missing(2) == 2
    assert drawn(8, steps=8).missing(0) == 0
    assert drawn(3, whole=False, steps=2).missing(6) == 0  # broken off


def test_an_epoch_with_few_steps_is_told_of_accumulate() -> None:
    with pytest.raises(ConfigError, match=r"called 2 times in an epoch of 8 steps.*accumulate=4"):
        drawn(8, steps=2).missing(6)


def test_a_step_before_its_mini_batches_is_refused() -> None:
    epoch = drawn(4, accumulate=4, whole=False)
    epoch.step()
    with pytest.raises(ConfigError, match=r"came 2 times for 4 mini-batches.*4 mini-batches"):
        epoch.step()
    drawn(1, whole=False, steps=5)  # one mini-batch over and over
    drawn(0, accumulate=4, whole=False, steps=5)  # your own DataLoader


@pytest.mark.parametrize(
    ("events", "done", "skipped"),
    [
        ("1s 2s 3s", [1, 2, 3], 0),
        ("1ss 2ss 3ss", [1, 1, 1, 2, 2, 3], 0),  # the first mini-batch is taken for one step's, the others are known
        ("1s 2ss 3s", [1, 2, 2, 2], 0),  # the last one may get a second step
        ("1s 2 3s 4s", [1, 3, 4], 1),
        ("1 1s 2 2s", [1, 2], 0),  # parts of one, with accumulate
        ("s s s", [1, 2, 3], 0),  # nobody knows what was drawn
    ],
)
def test_a_mini_batch_is_done_when_it_has_had_its_steps(events: str, done: list[int], skipped: int) -> None:
    batches, found = BatchesDone(), []

    for event in events.replace(" ", ""):
        if event == "s":
            batches.step()
            found.append(batches.done)
        else:
            batches.draw(int(event))

    assert (found, batches.skipped) == (done, skipped)
    last = batches.drawn or batches.done
    batches.end()
    assert batches.done == last
