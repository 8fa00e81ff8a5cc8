//! The model of Burn's example `text-generation`: embeddings of tokens and places, an encoder of transformers with a
//! mask that hides the future, and a layer that gives each token's chances. Its weights begin random, from a seed.

use burn::module::Module;
use burn::nn::attention::generate_autoregressive_mask;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput};
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::tensor::{Device, Int, Tensor, TensorData};

/// How large the model and its batches are.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Its name on the command line.
    pub name: &'static str,
    /// The length of a token's vector.
    pub width: usize,
    /// The length between the two layers of a feed-forward network.
    pub inner: usize,
    /// The heads of an attention.
    pub heads: usize,
    /// The layers of the encoder.
    pub layers: usize,
    /// The number of tokens there are.
    pub vocabulary: usize,
    /// Sequences in a batch.
    pub batch: usize,
    /// The lengths of sequences, one batch after the other.
    pub lengths: &'static [usize],
}

/// For a device in software, and as Burn's example has it: its layers, its batch, its longest sequence and the tokens
/// of GPT-2. The lengths go up and down, as those of batches do that are padded to their longest text.
pub const SIZES: [Size; 2] = [
    Size {
        name: "small",
        width: 64,
        inner: 256,
        heads: 4,
        layers: 4,
        vocabulary: 1024,
        batch: 8,
        lengths: &[16, 24, 12, 48, 20, 64, 8, 36],
    },
    Size {
        name: "example",
        width: 384,
        inner: 1536,
        heads: 12,
        layers: 6,
        vocabulary: 50_257,
        batch: 6,
        lengths: &[128, 192, 96, 384, 160, 512, 64, 288, 224, 448],
    },
];

/// The model.
#[derive(Module, Debug)]
pub struct Model {
    tokens: Embedding,
    places: Embedding,
    transformer: TransformerEncoder,
    output: Linear,
}

impl Model {
    /// Creates it with random weights.
    pub fn new(size: &Size, device: &Device) -> Model {
        let longest = size.lengths.iter().copied().max().unwrap_or(1);
        Model {
            tokens: EmbeddingConfig::new(size.vocabulary, size.width).init(device),
            places: EmbeddingConfig::new(longest, size.width).init(device),
            transformer: TransformerEncoderConfig::new(size.width, size.inner, size.heads, size.layers)
                .with_norm_first(true)
                .init(device),
            output: LinearConfig::new(size.width, size.vocabulary).init(device),
        }
    }

    /// Returns the loss of a batch: how badly each token's successor was foretold.
    pub fn loss(&self, inputs: Tensor<2, Int>, targets: Tensor<2, Int>) -> Tensor<1> {
        let ([batch, length], device) = (inputs.dims(), inputs.device());
        let places = Tensor::<1, Int>::arange(0..length as i64, &device).reshape([1, length]).repeat_dim(0, batch);
        let embedded = (self.places.forward(places) + self.tokens.forward(inputs)) / 2;
        let mask = generate_autoregressive_mask(batch, length, &device);
        let encoded = self.transformer.forward(TransformerEncoderInput::new(embedded).mask_attn(mask));
        let [.., vocabulary] = self.output.weight.dims();
        let chances = self.output.forward(encoded).reshape([batch * length, vocabulary]);
        CrossEntropyLossConfig::new().init(&device).forward(chances, targets.reshape([batch * length]))
    }
}

/// Returns tokens, and their successors: a walk through the vocabulary that can be learnt.
pub fn batch(size: &Size, length: usize, state: &mut u64, device: &Device) -> (Tensor<2, Int>, Tensor<2, Int>) {
    let mut rows = [Vec::new(), Vec::new()];
    for _ in 0..size.batch {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (start, stride) = ((*state >> 33) as usize, 1 + (*state >> 61) as usize);
        for (shift, row) in rows.iter_mut().enumerate() {
            row.extend((0..length).map(|place| ((start + (place + shift) * stride) % size.vocabulary) as i32));
        }
    }
    let [inputs, targets] = rows.map(|row| {
        let data = TensorData::new(row, [size.batch, length]);
        Tensor::<2, Int>::from_data(data, device)
    });
    (inputs, targets)
}
