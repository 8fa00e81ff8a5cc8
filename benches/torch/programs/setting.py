"""Where a program runs, and how large: what GPUs have and the CPU has not is empty there."""

import contextlib
import random

import torch


class Setting:
    """A device, whether sizes are those of a test, and which sizes are drawn."""

    def __init__(self, device="cuda", is_tiny=False, seed=0):
        self.device = torch.device(device)
        self.seed = seed
        self.is_cuda = self.device.type == "cuda"
        self.is_tiny = is_tiny

    def pick(self, full, tiny):
        """Returns the size for a GPU, or that of a test."""
        return tiny if self.is_tiny else full

    def draw(self, seed):
        """Returns numbers for sizes, by the seed of a program and that of the setting. The seeds of torch, for weights
        and data, of Python and of numpy are set to the same."""
        random.seed(seed + self.seed)
        with contextlib.suppress(ImportError):
            import numpy

            numpy.random.seed(seed + self.seed)
        torch.manual_seed(seed + self.seed)
        return random.Random(seed + self.seed)

    @contextlib.contextmanager
    def building(self, dtype=torch.float32):
        """Has modules that are made inside their weights on the device, of this type."""
        usual = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            with self.device:
                yield
        finally:
            torch.set_default_dtype(usual)

    def autocast(self, dtype=torch.bfloat16):
        """Returns a context with automatic mixed precision; the CPU has bfloat16 alone."""
        return torch.autocast(self.device.type, dtype if self.is_cuda else torch.bfloat16)

    def tokens(self, vocabulary, *shape):
        """Returns random tokens."""
        return torch.randint(0, vocabulary, shape, device=self.device)

    def streams(self, count):
        """Returns streams beside the current one."""
        return [torch.cuda.Stream(self.device) if self.is_cuda else None for _ in range(count)]

    def current(self):
        """Returns the current stream."""
        return torch.cuda.current_stream(self.device) if self.is_cuda else None

    def on(self, stream):
        """Returns a context in which work is queued on a stream."""
        return torch.cuda.stream(stream) if self.is_cuda else contextlib.nullcontext()

    def order(self, later, earlier):
        """Has one stream wait for what is queued on another one so far."""
        if self.is_cuda:
            later.wait_stream(earlier)

    def used(self, tensor, stream):
        """Tells the allocator that a stream uses a tensor that was made on another one. Returns the tensor."""
        if self.is_cuda:
            tensor.record_stream(stream)
        return tensor


def take_step(loss, optimiser):
    """Runs the backward pass and the optimiser, and drops the gradients. Returns the loss without its graph."""
    loss.backward()
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    return loss.detach()
