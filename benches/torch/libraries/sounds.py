"""Models of sounds: of transformers and of torchaudio, on recordings of many lengths."""

import torch
from torch.nn import functional

from libraries.models import made
from programs.setting import take_step

RATE = 16000


def recording(setting, draw, numbers, seconds):
    """Returns a batch of random sounds, whose number and length are drawn."""
    number = draw.randrange(*setting.pick(numbers, (1, 3)))
    length = int(RATE * draw.uniform(*setting.pick(seconds, (0.1, 0.2))))
    return torch.randn(number, length, device=setting.device)


def wav2vec2(setting, count):
    """Trains wav2vec 2.0 to write down what is said, with the loss that aligns letters and sounds."""
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    draw = setting.draw(141)
    width, layers, channels = setting.pick((768, 8, 512), (32, 2, 16))
    config = Wav2Vec2Config(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=setting.pick(12, 2), vocab_size=32,
        intermediate_size=4 * width, conv_dim=[channels] * 7, num_conv_pos_embedding_groups=setting.pick(16, 2),
        num_conv_pos_embeddings=setting.pick(128, 16), ctc_loss_reduction="mean", ctc_zero_infinity=True,
        mask_time_length=setting.pick(10, 2))
    model = made(setting, lambda: Wav2Vec2ForCTC(config)).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(count):
        sounds = recording(setting, draw, (3, 13), (2.0, 14.0))
        shape = len(sounds), draw.randrange(*setting.pick((10, 60), (2, 5)))
        letters = torch.randint(1, 32, shape, device=setting.device)
        with setting.autocast():
            loss = model(input_values=sounds, labels=letters).loss
        yield take_step(loss, optimiser)


@torch.no_grad()
def whisper(setting, count):
    """Has Whisper write down batches of recordings, of thirty seconds each: the encoder's blocks are large, and the
    decoder's are small and many."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    draw = setting.draw(142)
    width, layers, moments, vocabulary = setting.pick((768, 8, 1500, 51865), (32, 2, 50, 120))
    config = WhisperConfig(
        d_model=width, encoder_layers=layers, decoder_layers=layers, encoder_attention_heads=setting.pick(12, 2),
        decoder_attention_heads=setting.pick(12, 2), encoder_ffn_dim=4 * width, decoder_ffn_dim=4 * width,
        max_source_positions=moments, max_target_positions=448, vocab_size=vocabulary, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, decoder_start_token_id=3, suppress_tokens=[], begin_suppress_tokens=[])
    model = made(setting, lambda: WhisperForConditionalGeneration(config), torch.bfloat16).eval()
    for _ in range(count):
        number = draw.randrange(*setting.pick((2, 25), (1, 3)))
        sounds = torch.randn(number, 80, 2 * moments, device=setting.device, dtype=torch.bfloat16)
        more = draw.randrange(*setting.pick((16, 40), (3, 6)))
        words = model.generate(input_features=sounds, max_new_tokens=more, min_new_tokens=more,
                               num_beams=draw.choice((1, 3)), return_timestamps=False)
        yield (words.double() * torch.arange(1, words.shape[1] + 1, device=words.device)).mean()


def conformer(setting, count):
    """Trains a Conformer of torchaudio on spectrograms that are made on the device, some of whose parts are masked."""
    from torchaudio.models import Conformer
    from torchaudio.transforms import FrequencyMasking, MelSpectrogram, TimeMasking

    draw = setting.draw(143)
    width, layers, letters = setting.pick((256, 12, 256), (16, 2, 12))
    with setting.building():
        first, last = torch.nn.Linear(80, width), torch.nn.Linear(width, letters)
        layers = Conformer(width, setting.pick(4, 2), 4 * width, layers, 31)
    spectrum = MelSpectrogram(RATE, n_fft=400, hop_length=160, n_mels=80).to(setting.device)
    masks = torch.nn.Sequential(FrequencyMasking(20), TimeMasking(40))
    optimiser = torch.optim.AdamW([*first.parameters(), *layers.parameters(), *last.parameters()], lr=1e-4)
    for _ in range(count):
        sounds = recording(setting, draw, (8, 25), (3.0, 15.0))
        with torch.no_grad():
            seen = masks((spectrum(sounds) + 1e-6).log()).transpose(1, 2)
        lengths = torch.tensor([draw.randint(seen.shape[1] // 2, seen.shape[1]) for _ in sounds], device=setting.device)
        lengths[0] = seen.shape[1]
        with setting.autocast():
            found, lengths = layers(first(seen), lengths)
            scores = last(found).float().log_softmax(-1).transpose(0, 1)
        count_of = draw.randrange(*setting.pick((10, 60), (2, 5)))
        targets = torch.randint(1, letters, (len(sounds), count_of), device=setting.device)
        loss = functional.ctc_loss(scores, targets, lengths, torch.full_like(lengths, count_of), zero_infinity=True)
        yield take_step(loss, optimiser)


def separation(setting, count):
    """Trains a network of torchaudio to tell voices apart: a few large blocks for each of many convolutions."""
    from torchaudio.models import ConvTasNet

    draw = setting.draw(144)
    with setting.building():
        network = ConvTasNet(2, enc_num_feats=setting.pick(512, 16), msk_num_feats=setting.pick(128, 8),
                             msk_num_hidden_feats=setting.pick(512, 16), msk_num_stacks=setting.pick(2, 1),
                             msk_num_layers=setting.pick(8, 2))
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)
    for _ in range(count):
        sounds = recording(setting, draw, (2, 6), (1.0, 5.0))[:, None]
        parts = network(sounds)
        voices = torch.randn_like(parts)
        scale = (parts * voices).sum(-1, keepdim=True) / voices.square().sum(-1, keepdim=True)
        wanted = scale * voices
        loss = -(wanted.square().sum(-1) / (parts - wanted).square().sum(-1)).log10().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 5.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        yield loss.detach()
