"""Where a process stands among those of its program, and what it has computed, as a hash."""

import hashlib
import os

import torch
import torch.distributed as dist

from programs.setting import Setting


class Place:
    """The rank of this process, its device, and the devices that it has statistics of."""

    def __init__(self, device, is_tiny, is_alone):
        is_cuda = device == "cuda"
        self.rank = 0 if is_alone else int(os.environ["RANK"])
        self.world = 1 if is_alone else int(os.environ["WORLD_SIZE"])
        count = 2 if is_alone else 1
        first = 0 if is_alone else int(os.environ["LOCAL_RANK"])
        self.devices = [torch.device("cuda", first + at) if is_cuda else torch.device("cpu") for at in range(count)]
        self.setting = Setting(self.devices[0], is_tiny)
        if is_cuda:
            torch.cuda.set_device(self.devices[0])
        self.is_alone = is_alone

    def join(self):
        """Opens the group of processes, if there are several."""
        if self.is_alone:
            return
        if self.setting.is_cuda:
            dist.init_process_group("nccl", device_id=self.devices[0])
        else:
            dist.init_process_group("gloo")

    def leave(self):
        """Closes the group of processes."""
        if not self.is_alone:
            dist.barrier()
            dist.destroy_process_group()

    def wait(self):
        """Waits for all devices of this process."""
        if self.setting.is_cuda:
            for device in self.devices:
                torch.cuda.synchronize(device)


class Digest:
    """A hash of tensors, by their bytes."""

    def __init__(self):
        self.hash = hashlib.sha256()

    def add(self, *tensors):
        """Adds tensors. Of one that several ranks have parts of, this rank's part is added."""
        for tensor in tensors:
            mine = tensor.detach()
            mine = mine.to_local() if hasattr(mine, "to_local") else mine
            flat = mine.cpu().contiguous().reshape(-1).view(torch.uint8)
            self.hash.update(memoryview(flat.numpy()))

    def text(self):
        """Returns the first 16 digits."""
        return self.hash.hexdigest()[:16]


def make_deterministic():
    """Has torch compute the same in each run, and leave fresh memory as it is."""
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.deterministic = True
    # It is passed over in deterministic mode, and says so.
    torch.backends.cuda.enable_cudnn_sdp(False)
