"""conf/: every option composes and builds; a wrong word is one line that names the key."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from detector.config import CONF_DIR, Config, compose, groups
from detector.errors import ConfigError, ModelError
from detector.kineto import Limits

# What each entry point's file leaves open (???).
ENTRIES = {
    "scan": [],
    "train": ["data=here"],
    "evaluate": ["data=here"],
    "build": ["out=here"],
    "record": ["out=here"],
}
# What an option leaves open, filled with something that needs no server and no model.
OPEN = {
    "judge=openai": ["judge.base_url=http://127.0.0.1:9/v1", "judge.model=some"],
    "judge=transformers": ["judge.model=some"],
}


def own_groups(entry: str) -> list[str]:
    """The groups that the file of an entry point chooses from."""
    defaults = yaml.safe_load((CONF_DIR / f"{entry}.yaml").read_text())["defaults"]
    named = [next(iter(d)) for d in defaults if isinstance(d, dict)]
    return [name for name in named if not name.startswith("override")]


def shared_groups() -> Iterator[str]:
    """The groups that options of other groups take a table from."""
    for file in CONF_DIR.glob("*/*.yaml"):
        for default in (yaml.safe_load(file.read_text()) or {}).get("defaults", []):
            if isinstance(default, dict):
                yield next(iter(default)).removeprefix("/").partition("@")[0]


CHOICES = [
    pytest.param(entry, f"{group}={option}", id=f"{entry}-{group}={option}")
    for entry in ENTRIES
    for group in own_groups(entry)
    for option in groups()[group]
]
SCAN = [f"{group}={option}" for group in own_groups("scan") for option in groups()[group]]


def described(values: object) -> Iterator[dict]:
    """Every section, however deep, that says what it builds."""
    if isinstance(values, dict):
        if "_target_" in values:
            yield values
        for value in values.values():
            yield from described(value)


def test_every_file_at_the_top_of_conf_is_an_entry_point_and_every_group_is_used():
    assert {p.stem for p in CONF_DIR.glob("*.yaml")} == set(ENTRIES)
    used = {group for entry in ENTRIES for group in own_groups(entry)}
    assert used | set(shared_groups()) == set(groups())


@pytest.mark.parametrize(("entry", "choice"), CHOICES)
def test_every_option_of_every_group_composes_and_fits_what_it_names(entry, choice):
    config = compose(entry, [*ENTRIES[entry], choice, *OPEN.get(choice, [])])
    for section in described(config.values):
        module, _, name = section["_target_"].rpartition(".")
        target = getattr(import_module(module), name)
        inspect.signature(target).bind(**{k: v for k, v in section.items() if k[0] != "_"})


@pytest.mark.parametrize("choice", [c for c in SCAN if c != "judge=transformers"])
def test_every_option_of_a_scan_is_built(choice):
    more = OPEN.get(choice, [])
    group = choice.split("=")[0]
    try:
        built = compose("scan", [choice, *more]).build(group)
    except ModelError as error:
        if "No such file" in str(error):
            pytest.skip(f"the model is not in the checkout: {error}")
        raise
    if group in ("flagger", "judge"):
        assert built.name


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory) -> Path:
    """A language model that knows two words, in the form that transformers saves."""
    pytest.importorskip("torch", reason="judge=transformers needs torch")
    transformers = pytest.importorskip("transformers", reason="judge=transformers needs it")
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    folder = tmp_path_factory.mktemp("model")
    words = Tokenizer(WordLevel({"<unk>": 0, "slow": 1}, unk_token="<unk>"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)
    size = transformers.GPT2Config(vocab_size=2, n_positions=8, n_embd=4, n_layer=1, n_head=1)
    transformers.GPT2LMHeadModel(size).save_pretrained(folder)
    return folder


def test_the_transformers_judge_is_built(tiny_model):
    judge = compose("scan", ["judge=transformers", f"judge.model='{tiny_model}'"]).build("judge")
    assert judge.name.startswith("transformers ")


def test_what_is_composed_without_hydra_is_what_hydra_composes():
    by_hydra = compose("scan", ["window=steps"]).values  # what is set, it is asked for
    assert json.dumps(compose("scan").values) == json.dumps(by_hydra)


def test_a_section_is_built_from_the_inside_out():
    inner = {"_target_": "builtins.dict", "a": 1}
    section = {"_target_": "builtins.dict", "_partial_": True, "b": [inner, {"c": None}]}
    build = Config("scan", {"window": section}).build("window")
    assert build(d=2) == {"b": [{"a": 1}, {"c": None}], "d": 2}


def test_the_bounds_of_the_reader_are_its_own_defaults():
    assert compose("scan").build("limits") == Limits()


def test_the_defaults_of_the_report_are_those_of_the_code():
    from detector.pipeline import Settings

    assert compose("scan").build("report") == Settings()


def test_what_is_built_gets_plain_values_and_extra_arguments(tmp_path):
    (tmp_path / "window").mkdir()
    (tmp_path / "window" / "mine.yaml").write_text("_target_: builtins.dict\nsizes: [1, 2]\n")
    built = compose("scan", ["window=mine"], tmp_path).build("window", more=3)
    assert built == {"sizes": [1, 2], "more": 3}
    assert type(built["sizes"]) is list


WRONG = {
    "windw=steps": "invalid override: no key 'windw' (did you mean 'window'?)",
    "window=tim": "no option window=tim: there are steps, time",
    "window.prts=3": "invalid override: no key 'window.prts' (did you mean 'window.parts'?)",
    "window.parts=many": "window.parts must be a whole number, not 'many'",
    "window.parts=2.5": "window.parts must be a whole number, not 2.5",
    "window.parts=true": "window.parts must be a whole number, not True",
    "report.lead=small": "report.lead must be a number, not 'small'",
    "window.parts=1,2": "'window.parts' has several values: give one",
    "window.parts=[1": "invalid override 'window.parts=[1': write key=value",
    "judge={a:1}": "judge takes the name of an option: ",
    "judge=openai": "judge.base_url must be set: add judge.base_url=VALUE",
}


@pytest.mark.parametrize("word", WRONG)
def test_a_wrong_setting_is_one_line_that_names_the_key(word):
    with pytest.raises(ConfigError) as caught:
        compose("scan", [word])
    assert str(caught.value).startswith(WRONG[word])
    assert "\n" not in str(caught.value)


def test_an_unknown_argument_in_a_users_file_names_the_section(tmp_path):
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "mine.yaml").write_text("_target_: detector.kineto.Limits\nsize: 1\n")
    with pytest.raises(ConfigError, match=r"^report: .*size"):
        compose("scan", ["report=mine"], tmp_path).build("report")


def test_a_users_file_that_is_no_yaml_is_one_line(tmp_path):
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "mine.yaml").write_text("a: [1\n")
    with pytest.raises(ConfigError) as caught:
        compose("scan", ["report=mine"], tmp_path)
    assert "\n" not in str(caught.value)


def test_a_folder_of_settings_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match="gone"):
        compose("scan", config_dir=tmp_path / "gone")


def test_a_folder_of_settings_may_have_any_name(tmp_path):
    folder = tmp_path / "it's, {mine}=1"
    (folder / "window").mkdir(parents=True)
    (folder / "window" / "mine.yaml").write_text("a: 1\n")
    assert compose("scan", ["window=mine"], folder).values["window"] == {"a": 1}


def test_a_whole_number_may_stand_for_a_number_and_null_for_anything():
    assert compose("scan", ["report.lead=1"]).values["report"]["lead"] == 1
    assert compose("scan", ["window.parts=null"]).values["window"]["parts"] is None


def test_composing_leaves_no_trace_in_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    compose("scan", ["window.parts=4"])
    assert not list(tmp_path.iterdir())
