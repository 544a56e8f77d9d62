"""Configuration of a trainer and the command to start it, made from the trainer's templates."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from pipeline.publish.export.plan import ExportPlan


def table_file(plan: ExportPlan) -> str:
    """Return the path of the table of clips in the export."""
    return f"metadata.{plan.request.table_kind}"


def configuration(plan: ExportPlan) -> dict[str, str]:
    """Return the configuration of the trainer and the command to start it, by their path in the export."""
    trainer = plan.request.trainer
    environment = Environment(
        loader=PackageLoader("pipeline.publish.export", f"templates/{trainer.name}"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - TOML, YAML, JSON and shell: every path passes `quoted` or `shell`
    )
    environment.filters |= {"quoted": _quoted, "shell": shlex.quote}
    return {
        file: environment.get_template(template).render(_values(plan)) for template, file in trainer.templates.items()
    }


def _quoted(text: str) -> str:
    """Return a string as JSON, TOML and YAML read it."""
    return json.dumps(text, ensure_ascii=False)


def _values(plan: ExportPlan) -> dict[str, object]:
    assert plan.family is not None
    out = plan.request.out.absolute()
    names = {
        "videos": plan.request.trainer.folder,
        **{"dataset": "dataset.toml", "config": _config_file(plan), "training": "training.json"},
        **{"backend": "multidatabackend.json", "start": "start.sh"},
        **{"output": "training", "model": "training/lora.safetensors"},
        **{"cache": "cache", "cache_vae": "cache/vae", "cache_text": "cache/text"},
        "table": table_file(plan) if plan.request.trainer.table else "",
    }
    paths = {key: str(out / name) for key, name in names.items()}
    side = round((plan.format.width * plan.format.height) ** 0.5)
    return {**paths, "folder": str(out), "clips": plan.format, "family": plan.family.name, "side": side}


def _config_file(plan: ExportPlan) -> str:
    return next((file for file in plan.request.trainer.templates.values() if Path(file).stem == "config"), "")
