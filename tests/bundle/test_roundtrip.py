"""What is saved comes back: every field, every bit of every tensor, and the sharing of memory."""

from __future__ import annotations

import json
import warnings
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from tests.bundle.compare import differences, record_differences, record_fields
from tests.models import CASES, Case, Forward
from tests.torch_version import torch_is_at_least
from tests.torchvision_models import torchvision_models
from torch import Tensor, nn

import torchlens as tl
from torchlens.capture import dispatcher, gradients
from torchlens.capture import records as capture_records
from torchlens.capture.dispatcher import MissedOperation, UnknownTensor
from torchlens.capture.versions import versions_of


def logged(case: Case) -> tl.ModelLog:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tl.log_forward_pass(case.build(), case.inputs(), case.kwargs())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_tiny_models(case: Case, tmp_path: Path) -> None:
    log = logged(case)
    tl.save(log, tmp_path / "log")
    loaded, lazy = tl.load(tmp_path / "log"), tl.load(tmp_path / "log", lazy=True)
    if loaded.warnings != log.warnings:  # tensors of vmap's own have no value outside of it; classes are not saved
        assert "vmap" in loaded.warnings[-1] or "as plain tensors" in loaded.warnings[-1]
        assert loaded.op_labels == log.op_labels
        return
    if case.name == "jagged_tensors":  # torch numbers jagged dimensions anew in every tensor
        assert loaded.op_labels == log.op_labels
    else:
        assert differences(log, loaded) == []
        assert differences(log, lazy) == []
    before, after = log.validate(), loaded.validate()
    assert bool(after) == bool(before)
    if not after.unverified:  # functions and objects of the user's own
        assert str(after) == str(before)


def torchvision(name: str, size: int, **options: Any) -> Any:
    return lambda: (getattr(torchvision_models(), name)(weights=None, **options), [torch.rand(1, 3, size, size)], {})


def transformer(config: str, model: str, **sizes: Any) -> Any:
    def build() -> Any:
        transformers = pytest.importorskip("transformers")
        settings = getattr(transformers, config)(**sizes)
        return getattr(transformers, model)(settings), [], {"input_ids": torch.arange(6)[None] + 1}

    return build


ZOO = {
    "alexnet": torchvision("alexnet", 64),
    "resnet18": torchvision("resnet18", 32),
    "densenet121": torchvision("densenet121", 32),
    "googlenet": torchvision("googlenet", 64, init_weights=False, aux_logits=False),
    "mobilenet_v2": torchvision("mobilenet_v2", 32),
    "swin_t": torchvision("swin_t", 32),
    "vit_b_32": torchvision("vit_b_32", 32, image_size=32),
    "gpt2": transformer("GPT2Config", "GPT2Model", n_embd=32, n_layer=2, n_head=2, vocab_size=50),
    "bert": transformer(
        "BertConfig", "BertModel", hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
        vocab_size=50,
    ),
    "t5": transformer(
        "T5Config", "T5EncoderModel", d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, vocab_size=50
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ZOO)
def test_zoo(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, args, kwargs = ZOO[name]()
    log = tl.log_forward_pass(model.eval(), args, kwargs)
    tl.save(log, tmp_path / "log")
    loaded = tl.load(tmp_path / "log")
    assert differences(log, loaded) == []
    assert loaded.validate(perturb=False)


def test_a_loaded_log_can_be_saved_again(tmp_path: Path) -> None:
    log = logged(next(case for case in CASES if case.name == "condition"))
    tl.save(log, tmp_path / "one")
    tl.save(tl.load(tmp_path / "one", lazy=True), tmp_path / "two")
    assert differences(log, tl.load(tmp_path / "two")) == []


class Everything(nn.Module):
    """Has something for every field of every record."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.ModuleDict({"fc": nn.Linear(3, 3), "norm": nn.BatchNorm1d(3), "drop": nn.Dropout(0.5)})

    def forward(self, x: Tensor) -> list[Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            x = self.inner["drop"](self.inner["norm"](self.inner["fc"](x).float()))
        x[0] = 0
        if x.sum() > -100:
            x, _ = torch.sort(x, dim=1)
        return [x, x.square()]


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside = Everything()

    def forward(self, x: Tensor) -> list[Tensor]:
        return self.inside(x * 2)


def test_nothing_of_a_recording_is_forgotten(tmp_path: Path) -> None:
    """Whoever adds a field to a record meets this test: the field needs a column in bundle/columns.py.

    The list is derived from the records themselves. A field that no log of this test fills is told as well.
    """
    x = torch.rand(4, 3, requires_grad=True)
    options = {"activation_postfunc": Tensor.numel, "save_gradients": True}
    whole = tl.log_forward_pass(Outer(), x, module="inside", check_completeness=True, **options)
    whole[-1].activation.sum().backward()
    trace = whole.graph.trace
    assert trace.completeness is not None
    trace.completeness.missed.append(MissedOperation("aten::sin", "model.py", 3))
    trace.completeness.unknown.append(UnknownTensor((2, 3), "model.py", 4, "which came from nowhere"))
    trace.warnings.append("made up for this test")
    filled: set[str] = set()
    classes: dict[str, list[str]] = {}
    edited = tl.log_forward_pass(Outer(), x, interventions={"inside.inner.fc": tl.edits.scale(0.5)})
    edited.graph.trace.remarks.append("made up for this test")
    for log in (whole, tl.log_forward_pass(Outer(), x, layers_to_save=["sort"]), edited):
        tl.save(log, tmp_path / "log", overwrite=True)
        loaded = tl.load(tmp_path / "log").graph.trace
        log.graph.trace.versions = versions_of(log.graph.trace)  # of this process, until it is saved
        assert record_differences(log.graph.trace, loaded, "trace", filled, set()) == []
    for records in (vars(capture_records), vars(gradients), vars(dispatcher)):
        for kind in records.values():
            if isinstance(kind, type) and kind.__name__ in {name.split(".")[0] for name in filled}:
                classes[kind.__name__] = record_fields(_of(kind))
    assert {
        "Trace",
        "Value",
        "Call",
        "ModuleCall",
        "ReadEvent",
        "Completeness",
        "UnknownTensor",
        "Step",
    } <= classes.keys()
    forgotten = {f"{kind}.{name}" for kind, names in classes.items() for name in names} - filled
    assert forgotten == (set() if torch_is_at_least("2.9") else {"AutogradNode.saved"})  # torch < 2.9 does not tell


def _of(kind: type) -> Any:
    """Something of this class, for its fields only."""
    return kind.__new__(kind) if not issubclass(kind, tuple) else kind(*[None] * len(kind._fields))


def test_what_was_not_complete_is_not_after_loading(tmp_path: Path) -> None:
    """A log that is not valid must not be after saving and loading."""
    model = Forward(lambda x: torch.from_numpy(np.sin((x * 2).numpy())) + 1)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        log = tl.log_forward_pass(model, torch.rand(3), check_completeness=True)
    log.graph.trace.completeness.unknown.append(UnknownTensor((3,), "model.py", 4, "which came from nowhere"))
    tl.save(log, tmp_path / "log")
    loaded = tl.load(tmp_path / "log")
    assert not log.validate() and not loaded.validate()
    assert not loaded.completeness and str(loaded.completeness) == str(log.completeness)


def test_a_loaded_seed_reproduces_the_run(tmp_path: Path) -> None:
    torch.rand(3)  # somewhere in the middle of the sequence
    model, x = nn.Dropout(), torch.rand(50)
    log = tl.log_forward_pass(model, x)
    tl.save(log, tmp_path / "log")
    again = tl.log_forward_pass(model, x, random_seed=tl.load(tmp_path / "log").random_seed_used)
    assert torch.equal(again[-1].activation, log[-1].activation)


# ---- memory ---------------------------------------------------------------------------------------------------


def views(x: Tensor) -> Tensor:
    y = x * 2
    return y[1:].t() + y[1:].flatten().view(2, 5).t()


def addresses(log: tl.ModelLog) -> list[int]:
    return [op.activation.untyped_storage().data_ptr() for op in log if op.func_name in ("t", "view", "__getitem__")]


def test_views_share_their_memory_in_the_file_and_after_loading(tmp_path: Path) -> None:
    log = tl.log_forward_pass(Forward(views), torch.rand(3, 5))
    tl.save(log, tmp_path / "log")
    stored = safetensors.torch.load_file(tmp_path / "log" / "tensors-00000.safetensors")
    assert sum(tensor.numel() == 15 for tensor in stored.values()) == 2  # the input, and all views of the product
    loaded = tl.load(tmp_path / "log")
    assert len(set(addresses(loaded))) == 1 < len(addresses(loaded))
    assert differences(log, loaded) == []


def test_only_the_part_of_the_memory_that_was_saved_is_stored(tmp_path: Path) -> None:
    cache = torch.rand(1000, 8)

    def forward(x: Tensor) -> Tensor:
        return (cache * 1)[500:502] + x

    log = tl.log_forward_pass(Forward(forward), torch.rand(2, 8))
    assert log["mul"].tensor_shape == (1000, 8)
    log["mul"]._value.saved = None
    tl.save(log, tmp_path / "log")
    stored = safetensors.torch.load_file(tmp_path / "log" / "tensors-00000.safetensors")
    assert sorted(tensor.numel() for tensor in stored.values())[-2] == 16


def test_a_lazy_log_reads_nothing_until_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tl.log_forward_pass(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.rand(2, 4))
    tl.save(log, tmp_path / "log")
    lazy = tl.load(tmp_path / "log", lazy=True)
    reads: list[Any] = []
    from torchlens.bundle.shards import Location

    read = Location.read
    monkeypatch.setattr(Location, "read", lambda self, folder: reads.append(self) or read(self, folder))
    assert lazy["relu"].tensor_shape == (2, 4) and lazy.num_tensors_saved == 4 and lazy.saved_activation_memory == 128
    assert not reads and lazy["relu"].has_saved_activation
    tensor = lazy["relu"].materialize_activation()
    assert tensor is not None and torch.equal(tensor, log["relu"].activation) and len(reads) == 1
    assert lazy["relu"].activation is tensor and len(reads) == 1


def test_a_loaded_tensor_is_independent_of_the_file(tmp_path: Path) -> None:
    log = tl.log_forward_pass(nn.ReLU(), torch.rand(2, 4))
    tl.save(log, tmp_path / "log")
    loaded = tl.load(tmp_path / "log")
    loaded["relu"].activation.zero_()
    assert torch.equal(tl.load(tmp_path / "log")["relu"].activation, log["relu"].activation)


def test_saving_copies_nothing(tmp_path: Path) -> None:
    """Values share memory with the model's own tensors; asking for their bytes must not end that."""
    log = tl.log_forward_pass(nn.Sequential(nn.ReLU(), nn.Flatten()), torch.rand(2, 4))
    before = [torch._C._data_address(op.activation) for op in log]
    tl.save(log, tmp_path / "log")
    assert [torch._C._data_address(op.activation) for op in log] == before
    assert before[1] == before[2]


# ---- kinds of tensors and arguments ---------------------------------------------------------------------------


def random_bytes_as(dtype: torch.dtype) -> Tensor:
    return torch.randint(0, 256, (24 * dtype.itemsize,), dtype=torch.uint8).view(dtype).view(2, 12)


def can_be_copied(dtype: torch.dtype) -> bool:
    """Some are names only: torch itself can't copy a tensor of them."""
    try:
        random_bytes_as(dtype).view(3, 8).clone()
    except (RuntimeError, NotImplementedError):
        return False
    return True


DTYPES = sorted(
    {each for each in vars(torch).values() if isinstance(each, torch.dtype) and can_be_copied(each)}, key=str
)


def test_the_usual_types_are_among_them() -> None:
    usual = {torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool}
    assert usual | {torch.complex64, torch.float8_e4m3fn} <= set(DTYPES)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_type(dtype: torch.dtype, tmp_path: Path) -> None:
    x = random_bytes_as(dtype)
    log = tl.log_forward_pass(Forward(lambda x: x.view(3, 8)), x)
    tl.save(log, tmp_path / "log")
    for before, after in zip(log, tl.load(tmp_path / "log"), strict=True):
        assert after.activation is not None and after.activation.dtype is dtype and after.tensor_dtype is dtype
        assert torch.equal(before.activation.view(torch.uint8), after.activation.view(torch.uint8))


TENSORS = {
    "conjugated": lambda: torch.randn(3, 2, dtype=torch.complex64).conj(),
    "negated": lambda: torch.randn(3, 2, dtype=torch.complex64).conj().imag,
    "transposed": lambda: torch.randn(3, 2).t(),
    "channels last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "expanded": lambda: torch.randn(3, 1).expand(3, 1000),
    "strided": lambda: torch.randn(100)[3::7],
    "empty": lambda: torch.randn(0, 3),
    "scalar": lambda: torch.tensor(1.5),
    "NaN and infinity": lambda: torch.tensor([float("nan"), float("inf"), -0.0]),
    "coo": lambda: torch.randn(3, 4).relu().to_sparse(),
    "coo, not coalesced": lambda: torch.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (3,)),
    "csr": lambda: torch.randn(3, 4).relu().to_sparse_csr(),
    "csc": lambda: torch.randn(3, 4).relu().to_sparse_csc(),
    "bsr": lambda: torch.randn(4, 4).to_sparse_bsr((2, 2)),
    "mkldnn": lambda: torch.randn(3, 4).to_mkldnn(),
    "meta": lambda: torch.empty(3, 4, device="meta"),
    "per tensor": lambda: torch.quantize_per_tensor(torch.randn(3, 4), 0.1, 2, torch.qint8),
    "per channel": lambda: torch.quantize_per_channel(
        torch.randn(3, 4), torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0, 1, 2]), 0, torch.quint8
    ),
    "nested": lambda: torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(1, 3)]),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", TENSORS)
def test_every_kind_of_tensor(kind: str, tmp_path: Path) -> None:
    log = tl.log_forward_pass(Forward(lambda x: x.detach()), TENSORS[kind]())
    tl.save(log, tmp_path / "log")
    loaded = tl.load(tmp_path / "log")
    if kind == "meta":
        assert loaded[0].activation.device.type == "meta" and loaded[0].tensor_shape == (3, 4)
    elif kind == "negated":  # the same numbers, with their signs written out
        assert torch.equal(loaded[0].activation, log[0].activation)
    else:
        assert differences(log, loaded) == []
        assert str(loaded[0].activation) == str(log[0].activation)


class Odd(Tensor):
    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError


class Mild(Tensor):
    pass


def test_a_class_of_the_users_own_is_saved_as_a_plain_tensor(tmp_path: Path) -> None:
    log = tl.log_forward_pass(Forward(lambda x: x + 1), torch.rand(2).as_subclass(Mild))
    tl.save(log, tmp_path / "log")
    loaded = tl.load(tmp_path / "log")
    assert "Mild were saved as plain tensors" in loaded.warnings[-1]
    assert type(loaded[1].activation) is Tensor and torch.equal(
        loaded[1].activation, log[1].activation.as_subclass(Tensor)
    )


def test_a_tensor_that_can_not_be_saved_exactly_is_refused(tmp_path: Path) -> None:
    log = tl.log_forward_pass(Forward(lambda x: x + 1), torch.rand(2))
    log[0]._value.saved = torch.rand(2).as_subclass(Odd)
    with pytest.raises(tl.BundleError, match=r"the input number 0 .*class Odd can't be saved"):
        tl.save(log, tmp_path / "log")
    assert list(tmp_path.iterdir()) == []


Pair = namedtuple("Pair", "first second")


class Mine:
    def __repr__(self) -> str:
        return "Mine(3)"


ARGUMENTS = [
    None, True, 3, 2**80, -1.5, float("inf"), 2 + 3j, "text \u00e4\U0001f600",
    b"\x00\xff", (1, [2, {"a": (3,)}]), {1: 2}, {1, 2},
    frozenset({3}), slice(1, None, 2), range(3), ..., torch.float32, torch.strided, torch.preserve_format,
    torch.device("cpu"), torch.Size([1, 2]), np.float32(1.5), np.arange(4).reshape(2, 2), int, Tensor, Pair(1, 2),
]  # fmt: skip


def test_arguments(tmp_path: Path) -> None:
    log = tl.log_forward_pass(nn.ReLU(), torch.rand(2))
    calls, place = log.graph.trace.calls, log["relu"]._value.call
    mine = Mine()
    kwargs = {"mine": mine, "again": [mine], "other": Mine(), "nan": float("nan")}
    calls[place] = calls[place]._replace(args=(*calls[place].args, *ARGUMENTS), kwargs=kwargs)
    tl.save(log, tmp_path / "log")
    loaded = tl.load(tmp_path / "log")
    assert differences(log, loaded) == []
    kwargs = loaded["relu"].captured_kwargs
    assert kwargs["mine"] is kwargs["again"][0] is not kwargs["other"]
    assert repr(kwargs["mine"]) == "SavedObject(Mine(3))" and kwargs["mine"].type_name.endswith("Mine")


def test_gradients(tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)), torch.rand(3, 4, requires_grad=True)
    log = tl.log_forward_pass(model, x, save_gradients=True, gradient_postfunc=lambda gradient: gradient.norm())
    log[-1].activation.sum().backward(retain_graph=True)
    log["relu"].activation.sum().backward()
    tl.save(log, tmp_path / "log")
    for loaded in (tl.load(tmp_path / "log"), tl.load(tmp_path / "log", lazy=True)):
        assert len(loaded.backward_passes) == 2
        assert [each.layers for each in loaded.backward_passes] == [each.layers for each in log.backward_passes]
        for before, after in zip(log, loaded, strict=True):
            assert len(before.gradients) == len(after.gradients)
            for one, other in zip(before.gradients, after.gradients, strict=True):
                assert (one is None and other is None) or torch.equal(one, other)
            assert [str(node) for node in before.grad_fns] == [str(node) for node in after.grad_fns]
            if torch_is_at_least("2.9"):  # an older one does not tell
                assert before.saved_for_backward_memory == after.saved_for_backward_memory
    tl.save(log, tmp_path / "without", include_gradients=False)
    assert tl.load(tmp_path / "without")["relu"].gradients == []


# ---- options --------------------------------------------------------------------------------------------------


def test_leaving_out_values_and_arguments(tmp_path: Path) -> None:
    torch.manual_seed(0)
    log = tl.log_forward_pass(nn.Sequential(nn.Linear(4, 4), nn.Dropout()), torch.rand(2, 4))
    tl.save(log, tmp_path / "facts", include_activations=False, include_arguments=False)
    facts = tl.load(tmp_path / "facts")
    assert facts.num_tensors_saved == 0 and facts.op_labels == log.op_labels and facts.total_flops == log.total_flops
    assert facts.params["0.weight"].value is None and facts["dropout"].func_rng_states is None
    assert [path.name for path in sorted((tmp_path / "facts").iterdir())] == ["manifest.json", "metadata.json"]
    tl.save(log, tmp_path / "values", include_arguments=False)
    values = tl.load(tmp_path / "values")
    assert torch.equal(values["linear"].activation, log["linear"].activation) and values.params[0].value is None


def test_what_is_there_is_protected(tmp_path: Path) -> None:
    log = tl.log_forward_pass(nn.ReLU(), torch.rand(2))
    tl.save(log, tmp_path / "log")
    with pytest.raises(tl.BundleError, match="overwrite=True"):
        tl.save(log, tmp_path / "log")
    tl.save(log, tmp_path / "log", overwrite=True)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.txt").write_text("dear")
    for victim in ("notes", "notes/thesis.txt"):
        with pytest.raises(tl.BundleError, match="not a bundle"):
            tl.save(log, tmp_path / victim, overwrite=True)
    assert (tmp_path / "notes" / "thesis.txt").read_text() == "dear"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "notes"]


def test_a_log_cut_short_can_be_saved(tmp_path: Path) -> None:
    def forward(x: Tensor) -> Tensor:
        torch.relu(x)
        raise ValueError("no")

    with pytest.raises(ValueError) as caught:
        tl.log_forward_pass(Forward(forward), torch.rand(2))
    tl.save(caught.value.partial_log, tmp_path / "log")
    assert differences(caught.value.partial_log, tl.load(tmp_path / "log")) == []


def test_the_files_are_plain(tmp_path: Path) -> None:
    """JSON that any reader takes, and tensors that safetensors reads without us."""
    log = tl.log_forward_pass(nn.Sequential(nn.Linear(3, 4), nn.Sigmoid()), torch.rand(2, 3))
    tl.save(log, tmp_path / "log")
    manifest = json.loads((tmp_path / "log" / "manifest.json").read_text())
    assert manifest["schema"] == 3 and [shard["file"] for shard in manifest["shards"]] == ["tensors-00000.safetensors"]
    json.loads((tmp_path / "log" / "metadata.json").read_text(), parse_constant=pytest.fail)
    stored = safetensors.torch.load_file(tmp_path / "log" / "tensors-00000.safetensors")
    assert torch.equal(stored["op.2"], log["sigmoid"].activation) and stored["param.0.0.weight"].shape == (4, 3)


def test_not_a_log(tmp_path: Path) -> None:
    with pytest.raises(tl.ArgumentError, match="must be a ModelLog"):
        tl.save({}, tmp_path / "log")  # type: ignore[arg-type]
