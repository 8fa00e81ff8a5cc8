"""GPT-2 on two ranks, each with batches of other lengths: whole on both, or in shards."""

import tempfile

import torch
import torch.distributed as dist
from torch import nn

from programs import gpt2
from programs.blocks import next_token_loss
from ranks.place import Digest


class Training:
    """What both have in common: the batches and the optimiser. ``network`` is what they train."""

    def __init__(self, place, network, vocabulary):
        self.place, self.network, self.vocabulary = place, network, vocabulary
        self.optimiser = torch.optim.AdamW(network.parameters(), lr=3e-4)
        # Ranks have other tokens, of other lengths.
        self.draw = place.setting.draw(100 + place.rank)

    def tokens(self):
        """Returns the tokens of a step."""
        setting = self.place.setting
        length = self.draw.randrange(*setting.pick((64, 1024), (8, 24)))
        return setting.tokens(self.vocabulary, setting.pick(8, 2), length)

    def train(self, loss):
        """Runs the backward pass and the optimiser, with the gradients clipped. Returns the loss."""
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        return loss.detach()


class Replicated(Training):
    """DistributedDataParallel, whose gradients are views of buckets."""

    def __init__(self, place):
        setting = place.setting
        setting.draw(1)
        network, vocabulary = gpt2.model(setting)
        network = nn.parallel.DistributedDataParallel(
            network, device_ids=place.devices if setting.is_cuda else None, gradient_as_bucket_view=True)
        super().__init__(place, network, vocabulary)

    def step(self, _):
        tokens = self.tokens()
        with self.place.setting.autocast():
            loss = next_token_loss(self.network(tokens), tokens)
        return self.train(loss)

    def finish(self):
        digest = Digest()
        digest.add(*self.network.parameters())
        everyone = [None] * self.place.world
        dist.all_gather_object(everyone, digest.text())
        assert everyone == [digest.text()] * self.place.world, f"weights differ between ranks: {everyone}"
        return digest.text()


class Sharded(Training):
    """FSDP2: each layer is sharded by itself, and computes in bfloat16."""

    def __init__(self, place):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        setting = place.setting
        setting.draw(1)
        network, vocabulary = gpt2.model(setting)
        options = {
            "mesh": init_device_mesh(setting.device.type, (place.world,)),
            "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
        }
        for layer in network.layers:
            fully_shard(layer, **options)
        fully_shard(network, **options)
        super().__init__(place, network, vocabulary)

    def step(self, _):
        tokens = self.tokens()
        return self.train(next_token_loss(self.network(tokens).float(), tokens))

    def finish(self):
        self.restore()
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

        digest = Digest()
        digest.add(*self.network.parameters())
        # Rank 0 gets the whole state, and the others nothing.
        whole = get_model_state_dict(self.network, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        assert bool(whole) == (self.place.rank == 0), f"rank {self.place.rank} got {len(whole)} tensors"
        digest.add(*(whole[name] for name in sorted(whole)))
        return digest.text()

    def restore(self):
        """Saves the shards to files, destroys them, loads them, and compares."""
        import torch.distributed.checkpoint as files
        from torch.distributed.checkpoint.state_dict import get_model_state_dict

        before, between, after = Digest(), Digest(), Digest()
        before.add(*self.network.parameters())
        with tempfile.TemporaryDirectory() as mine:
            folder = [mine]
            dist.broadcast_object_list(folder, src=0)
            state = get_model_state_dict(self.network)
            files.save(state, checkpoint_id=folder[0])
            with torch.no_grad():
                for weights in self.network.parameters():
                    weights.zero_()
            between.add(*self.network.parameters())
            files.load(state, checkpoint_id=folder[0])
            # The folder is rank 0's, and the others may still be reading.
            dist.barrier()
        after.add(*self.network.parameters())
        assert before.text() == after.text() != between.text(), "a checkpoint brought other weights back"
