"""A workspace and a report in a project of Weights & Biases, made by `wandb-workspaces`.

The specification of both is in `wandb.json`; what W&B draws of it has not been tried.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from captioning.errors import CaptioningError, naming
from captioning.files import write_json
from captioning.metrics.table import HEADLINE, HEADLINES
from captioning.report.section import Section

FILE = "wandb.json"
GROUP = "Group"  # a system in W&B: the runs of its seeds
BAND = {"groupby": GROUP, "groupby_aggfunc": "mean", "groupby_rangefunc": "stddev"}


def publish(
    address: str, parts: Sequence[Section], pictures: Sequence[Path], folder: Path
) -> list[str]:
    """Write the specification, upload pictures, save workspace and report, and return addresses.

    Args:
        address: `ENTITY/PROJECT`.
        parts: of the report.
        pictures: PNG files.
        folder: of `wandb.json`.
    """
    try:
        import wandb
        import wandb_workspaces.reports.v2 as reports
        import wandb_workspaces.workspaces as workspaces
    except ImportError as error:
        raise CaptioningError(
            "wandb=ENTITY/PROJECT needs wandb-workspaces: pip install 'captioning[dashboard]'"
        ) from error
    entity, project = address.split("/")
    names = {name for part in parts for run in part.runs for name in run.scores}
    scores = [name for name in HEADLINES if name in names]
    keys = [f"report/{picture.stem}" for picture in pictures]
    sections = _sections(reports, scores, keys)
    workspace = workspaces.Workspace(
        entity=entity,
        project=project,
        name="captioning: systems",
        sections=[
            workspaces.Section(name=name, panels=panels, is_open=True)
            for name, panels in sections.items()
        ],
        runset_settings=workspaces.RunsetSettings(
            filters=_of_parts(workspaces, parts),
            groupby=[workspaces.Metric(GROUP)],
            pinned_columns=[f"summary:test/{name}" for name in scores]
            + [f"summary:val/{HEADLINE}.max", "config:name.value", "config:data.value.root"],
        ),
    )
    blocks: list[Any] = [reports.TableOfContents()]
    of_each = [
        reports.Runset(
            name=part.title, filters=_of_parts(workspaces, [part]), groupby=[f"run.{GROUP.lower()}"]
        )
        for part in parts
    ]
    for part, runs in zip(parts, of_each, strict=True):
        blocks += [reports.H1(part.title), reports.MarkdownBlock(part.text)]
        for name, panels in sections.items():
            blocks += [reports.H2(name), reports.PanelGrid(runsets=[runs], panels=panels)]
    report = reports.Report(
        project=project, entity=entity, title="Systems compared", blocks=blocks, width="fluid"
    )
    views: dict[str, Any] = {"workspace": workspace, "report": report}
    specification = {
        name: view._to_model().spec.model_dump(mode="json", by_alias=True)
        for name, view in views.items()
    }
    write_json(folder / FILE, specification)
    for runs in of_each:  # only now, as W&B is asked for the number of a project
        runs.entity, runs.project = entity, project
    with naming(f"wandb={address} cannot be written, and {folder / FILE} has its specification"):
        made = [workspace.save().url]
        with wandb.init(entity=entity, project=project, job_type="report") as run:
            pairs = zip(keys, pictures, strict=True)
            run.log({key: wandb.Image(str(picture)) for key, picture in pairs})
        return [*made, report.save().url]


def _of_parts(workspaces: Any, parts: Sequence[Section]) -> Any:
    """The runs of some parts, by experiment and data; W&B shows both as filters.

    W&B has the word `value` behind the first key of a setting; the library takes a bare `name` for
    that of the run.
    """
    of_each = [
        workspaces.And(
            workspaces.Config("name.value").isin(sorted({run.name for run in part.runs})),
            workspaces.Config("provenance.value.data_digest")
            == part.runs[0].provenance.data_digest,
        )
        for part in parts
    ]
    return workspaces.Or(*of_each)


def _sections(reports: Any, scores: Sequence[str], pictures: Sequence[str]) -> dict[str, list[Any]]:
    """The panels: learning curves by system, test scores, differences, captions and attention."""
    main, *others = f"val/{HEADLINE}", "val/nll", "val/attention movement"
    curves = [reports.LinePlot(x="epoch", y=[y], title=y, **BAND) for y in (main, *others)]
    against_time = reports.LinePlot(x="seconds", y=[main], title=f"{main} in time", **BAND)
    bars = [reports.BarPlot(metrics=[f"test/{name}"], title=name, **BAND) for name in scores]
    shown = [reports.MediaBrowser(media_keys=[key], num_columns=1) for key in pictures]
    captions = [
        reports.MediaBrowser(media_keys=["val/attention"], gallery_axis="run"),
        reports.WeavePanelSummaryTable(table_name="val/captions"),
        reports.WeavePanelSummaryTable(table_name="test/captions"),
    ]
    return {
        "Learning curves": [*curves, against_time],
        "Test scores": bars,
        "Differences with intervals": shown,
        "Captions and attention": captions,
    }
