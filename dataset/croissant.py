"""Croissant metadata of a built benchmark: ``croissant.json``, which says what the tables hold.

The format is MLCommons' Croissant 1.1 (https://docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html),
JSON-LD that data set catalogs and loaders read; ``mlcroissant`` checks and loads it:

    mlcroissant.Dataset("FOLDER/croissant.json").records("traces")

It takes minutes over ``windows``, which ``load_dataset`` reads in seconds. Each Parquet file is
listed with its hash, each table is a record set, and the record set ``groups`` says for every
scheme which part the files of a group are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from dataset.publish import COLUMN_TYPES, file_of, names_of
from dataset.splits import SCHEMES, Group, groups
from detector import __version__
from detector.features import COLUMNS

Json = dict[str, Any]

NAME: Final = "performance-anti-patterns-in-pytorch-profiler-traces"
TITLE: Final = "Performance anti-patterns in PyTorch profiler traces"
PARQUET: Final = "application/x-parquet"
TYPES: Final = {
    "string": "sc:Text",
    "float32": "sc:Float",
    "float64": "sc:Float",
    "int64": "sc:Integer",
    "bool": "sc:Boolean",
    "numbers": "sc:Float",
    "times": "sc:Float",
}  # any other column holds the number of a word
LISTS: Final = ("classes", "numbers", "times")
TABLES: Final = {
    "traces": "One row a trace: where it came from, its parts in every scheme, its step times.",
    "regions": "One row a labeled span of a trace.",
    "windows": "One row a cut of a step: features, and the share that labeled regions cover.",
    "candidates": "One row a pattern that the product would find, with its savings, unlabeled.",
    "evidence": "One row a place in a trace as text, with the pattern that is there.",
}
COLUMN: Final = {
    "trace": "name of the trace",
    "origin": "recorded, injected, simulated or natural (labeled by hand)",
    "workload": "the program; never on two sides of a split",
    "device": "cpu, cuda:NAME, rocm:NAME or simulated:NAME",
    "pair": "traces with the same pair are twins, with and without a fault",
    "quality": "bad: with a labeled fault",
    "seed": "of the program, or of the draw of the fault",
    "file": "the trace, below the benchmark's folder",
    "sha256": "of the file",
    "base": "the real trace that a fault was put into",
    "licence": "of the trace, or of its base",
    "framework": "release of PyTorch",
    "generator": "version of the label",
    "parameters": "how it was made, as JSON",
    "step_us": "median step time in µs",
    "healthy_step_us": "step time in µs without the fault, where it is known",
    "analyzed_us": "analyzed time in µs, of which costs and savings are shares",
    "healthy": "known to have no problem anywhere; never an untouched base",
    "extent": "the fault is in every step, in some, in one",
    "patterns": "the patterns of the labeled regions",
    "start_us": "µs on the trace file's own ts axis",
    "end_us": "µs on the trace file's own ts axis, exclusive",
    "pattern": "id of the anti-pattern",
    "side": "the host's (cpu) or the device's (gpu)",
    "cost_us": "analyzed time in µs that the region adds; NaN where nobody knows",
    "cost_from": "how the cost is known: twin, injection, simulation or hand",
    "harmless": "it costs so little that naming it is neither right nor wrong",
    "cpu": "share of the window that a fault of the host's side covers",
    "gpu": "share of the window that a fault of the device's side covers",
    "unknown_cpu": "share of the window in which nobody knows about the host's side",
    "unknown_gpu": "share of the window in which nobody knows about the device's side",
    "text": "the evidence as a judge reads it",
    "numbers": "what the light model sees of the candidate",
    "savings_us": "what repairing it saves of the analyzed time, µs, by replay",
    "starts_us": "where each of its places starts, µs on the trace file's own ts axis",
    "ends_us": "where each of its places ends, exclusive",
    "visible": "the patterns that this trace could show",
    **{scheme: f"the trace's part in the scheme {scheme}" for scheme in SCHEMES},
}
# As the specification has it, whole.
WORDS: Final = (
    "arrayShape citeAs column containedIn equivalentProperty extract field fileObject fileProperty"
    " fileSet format includes isArray isLiveDataset jsonPath key md5 parentField path recordSet"
    " references regex repeated replace samplingRate separator source subField transform"
)
CONTEXT: Final = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "dct": "http://purl.org/dc/terms/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
    **{word: f"cr:{word}" for word in WORDS.split()},
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "description": {"@container": "@language"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": {"@container": "@language"},
}


def metadata(manifest: Mapping[str, Any], folder: Path) -> Json:
    """The metadata of a build whose tables lie in ``folder``. Raises OSError without them."""
    traces = manifest["traces"]
    found = groups({scheme: [t[scheme] for t in traces] for scheme in SCHEMES})
    tables: Mapping[str, Mapping[str, int]] = {k: v for k, v in manifest["tables"].items() if v}
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": NAME,
        "description": (
            f"{len(traces)} traces of PyTorch programs with labels by region: which performance"
            " anti-pattern is where. The card, README.md, says how they were made, the splits,"
            " the tasks, the metrics and the limits."
        ),
        "license": sorted({t["licence"] for t in traces}),
        "version": __version__,
        "citeAs": f"{TITLE}, made by trace-antipattern-detector {__version__}",
        "keywords": ["pytorch", "profiler", "kineto", "performance", "trace"],
        "distribution": [*_files(tables, folder), *(_set(name) for name in tables)],
        "recordSet": [_groups(found), *(_table(name) for name in tables)],
    }


def _files(tables: Mapping[str, Iterable[str]], folder: Path) -> Iterator[Json]:
    for table, names in tables.items():
        for name in names:
            file = file_of(table, name)
            content = (folder / file).read_bytes()
            yield {
                "@type": "cr:FileObject",
                "@id": file,
                "name": file,
                "contentUrl": file,
                "contentSize": f"{len(content)} B",
                "encodingFormat": PARQUET,
                "sha256": sha256(content).hexdigest(),
            }


def _set(table: str) -> Json:
    return {
        "@type": "cr:FileSet",
        "@id": f"{table}-files",
        "name": f"{table}-files",
        "encodingFormat": PARQUET,
        "includes": file_of(table, "*"),
    }


def _groups(found: Sequence[Group]) -> Json:
    """Which part the files of each group are, by scheme."""
    columns = ("group", *SCHEMES)
    rows = [{"group": group.name, **group.parts} for group in found]
    return {
        "@type": "cr:RecordSet",
        "@id": "groups",
        "name": "groups",
        "description": "The part of each group of traces in every split scheme.",
        "dataType": "cr:Split",
        "key": {"@id": "groups/group"},
        "field": [_field("groups", column, "sc:Text", "") for column in columns],
        "data": [{f"groups/{column}": row[column] for column in columns} for row in rows],
    }


def _table(name: str) -> Json:
    fields = [_group_of_file(name)]
    for column, kind in COLUMN_TYPES[name].items():
        about = COLUMN.get(column, "")
        if words := names_of(column, kind):
            about += ": " + ", ".join(f"{i} {word}" for i, word in enumerate(words))
        made = _field(name, column, TYPES.get(kind, "sc:Integer"), about)
        made["source"] = {"fileSet": {"@id": f"{name}-files"}, "extract": {"column": column}}
        fields.append(made | ({"isArray": True, "arrayShape": "-1"} if kind in LISTS else {}))
    for column in COLUMNS if name == "windows" else ():
        made = _field(name, column, "sc:Float", "")
        made["source"] = {"fileSet": {"@id": f"{name}-files"}, "extract": {"column": column}}
        fields.append(made)
    about = {"name": name, "description": TABLES[name]}
    return {"@type": "cr:RecordSet", "@id": name, **about, "field": fields}


def _group_of_file(table: str) -> Json:
    made = _field(table, "group", "sc:Text", "the group of traces that share a file")
    made["source"] = {
        "fileSet": {"@id": f"{table}-files"},
        "extract": {"fileProperty": "filename"},
        "transform": {"regex": r"^(.+?)(?:\.parquet)?$"},
    }
    return made | {"references": {"field": {"@id": "groups/group"}}}


def _field(record_set: str, name: str, kind: str, about: str) -> Json:
    made = {"@type": "cr:Field", "@id": f"{record_set}/{name}", "name": name, "dataType": kind}
    return made | ({"description": about} if about else {})
