"""A script with the Trainer of transformers: one line changes, and in lock-step it trains what the plain one does, also with
PEFT's LoRA, and after a Ctrl-C."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from paceline.core.errors import ConfigError
from tests.support.commands import paceline

torch = pytest.importorskip("torch")
pytest.importorskip("accelerate", reason="pip install 'paceline[transformers]'")
pytest.importorskip("transformers", minversion="5.24", reason="pip install 'paceline[transformers]'")

from transformers import TrainingArguments  # noqa: E402

import paceline.transformers as ours  # noqa: E402

SCRIPT = """
import json, os, signal, sys, time, torch, transformers
from pathlib import Path
from paceline.transformers import Trainer
from transformers import EarlyStoppingCallback, GPT2Config, GPT2LMHeadModel, TrainerCallback, TrainingArguments

tokens = torch.randint(0, 20, (48, 12), generator=torch.Generator().manual_seed(1)).cumsum(1) % 50
rows = [{"input_ids": row, "labels": row} for row in tokens]
CONFIG = {"vocab_size": 50, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}
NO_DROPOUT = {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}


class CtrlC(TrainerCallback):
    def on_step_begin(self, args, state, control, **options):
        if state.global_step == 2 and not Path("stopped").exists() and state.is_world_process_zero:
            Path("stopped").touch()
            os.kill(json.loads(Path("runs/r/run.json").read_text())["launcher"], signal.SIGINT)
            time.sleep(60)


def train(kind, folder, callbacks=()):
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(**CONFIG, **NO_DROPOUT))
    if "lora" in sys.argv:
        from peft import LoraConfig, get_peft_model
        model = get_peft_model(model, LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True))
    args = TrainingArguments(
        folder,
        per_device_train_batch_size=16,
        gradient_accumulation_steps=2,
        num_train_epochs=9,
        learning_rate=1e-2,
        warmup_steps=3,
        max_grad_norm=0.2,
        eval_strategy="epoch",
        save_strategy="epoch",
        load_best_model_at_end=True,
        metric_for_best_model="eval_loss",
        greater_is_better=True,  # so that the first score is the best one
        restore_callback_states_from_checkpoint=True,
        use_cpu=True,
        report_to=[],
    )
    callbacks = [EarlyStoppingCallback(3), *callbacks]
    trainer = kind(model, args, train_dataset=rows[:32], eval_dataset=rows[32:], callbacks=callbacks)
    trainer.train(resume_from_checkpoint=kind is Trainer and Path("stopped").exists())
    return trainer


trainer = train(Trainer, "launched", [CtrlC()] * ("stopped" in sys.argv))
if trainer.is_world_process_zero():
    plain = train(transformers.Trainer, "plain")
    pairs = zip(trainer.model.parameters(), plain.model.parameters())
    print("FAR", max((one - other).abs().max().item() for one, other in pairs))
    both = (trainer, plain)
    print("STEPS", *(f"{one.state.global_step} {one.state.best_global_step}" for one in both))
    last = ([line["eval_loss"] for line in one.state.log_history if "eval_loss" in line][-1] for one in both)
    print("LOSSES", *last)
    print("TRAINED", sum(one.numel() for one in trainer.model.parameters() if one.requires_grad))
elif trainer.state.best_metric is not None:
    sys.exit("a worker that is not the first has evaluated")
"""


@pytest.mark.parametrize("how", ["whole", "lora", "stopped"])
def test_the_trainer_evaluates_stops_and_keeps_the_best_model_as_the_plain_one(tmp_path: Path, how: str) -> None:
    if how == "lora":
        pytest.importorskip("peft")
    (tmp_path / "train.py").write_text(SCRIPT)

    ended = paceline("launch", "-w", 2, "-s", 1, "--policy", "bsp", "--run", "r", "train.py", how, cwd=tmp_path)
    if how == "stopped":
        assert ended.returncode == 130, ended.stdout + ended.stderr
        ended = paceline("run", "runs/r/config.yaml", cwd=tmp_path)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    printed = dict(re.findall(r"^(FAR|STEPS|LOSSES|TRAINED) (.*)", ended.stdout + ended.stderr, re.M))
    ours, theirs = map(float, printed["LOSSES"].split())
    assert float(printed["FAR"]) < 1e-5
    assert printed["STEPS"] == "4 1 4 1"
    assert ours == pytest.approx(theirs, abs=1e-4)
    assert "the Trainer of worker 0 has stopped" in ended.stdout + ended.stderr
    if how != "stopped":
        status = json.loads((tmp_path / "runs/r/metrics.jsonl").read_text().splitlines()[-1])
        sent = status["workers"][0]["figures"]["sent_bytes"]
        assert sent == pytest.approx(4 * 4 * int(printed["TRAINED"]), rel=0.01)  # four steps


def test_a_new_run_begins_at_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = SimpleNamespace(is_alone=False, rank=0, notes=lambda number: tmp_path / "none")
    monkeypatch.setattr(ours, "current", lambda: run)
    args = TrainingArguments(str(tmp_path), use_cpu=True, report_to=[])

    with pytest.raises(ConfigError, match="in a new run, whose servers begin at step 0"):
        ours.Trainer(torch.nn.Linear(2, 1), args).train(resume_from_checkpoint=True)
