"""Who allocates: how Millpond is put in place, and when that is refused."""

import torch

from gpu.common import ARGUMENTS, Absent, child, expect, feature


@feature
def backend() -> str:
    name: str = torch.cuda.get_allocator_backend()
    expect(name == ("native" if ARGUMENTS.native else "millpond"), name)
    return name


@feature
def enable_does_not_initialise() -> None:
    expect("no no" in child("print('yes' if torch.cuda.is_initialized() else 'no', end=' ')\n"
                            "torch.cuda.is_available(); torch.manual_seed(1)\n"
                            "print('yes' if torch.cuda.is_initialized() else 'no')"))


@feature
def autoload() -> None:
    if ARGUMENTS.native:
        raise Absent("it is Millpond's")
    code = "import torch; torch.empty(1, device='cuda'); print(torch.cuda.get_allocator_backend())"
    try:
        expect("millpond" in child(code, {"MILLPOND_TORCH": "1"}, prelude=False))
    except AssertionError:
        import importlib.metadata

        points = importlib.metadata.entry_points(group="torch.backends")
        if not any(point.name == "millpond" for point in points):
            raise Absent("the package is not installed, so it has no entry point") from None
        raise
    expect("native" in child(code, {"MILLPOND_TORCH": "0"}, prelude=False))


@feature
def too_late() -> None:
    if ARGUMENTS.native:
        raise Absent("it is Millpond's")
    for use in ("torch.empty(8, pin_memory=True)", "torch.empty(8, device='cuda')"):
        said = child(f"import torch\n{use}\nimport millpond.torch\n"
                     "try:\n    millpond.torch.enable()\nexcept millpond.torch.Error as error:\n    print(error)\n"
                     "print(torch.cuda.get_allocator_backend(), float(torch.ones(3, device='cuda').sum()))",
                     prelude=False)
        expect("before the first CUDA use" in said and "native" in said, said)
