//! A model of candle-transformers with random weights, and what it is asked: some prompts one after another, each
//! answered token by token, with a cache of keys and values that grows with each token.

use std::time::{Duration, Instant};

use candle_core::{DType, Device, Result, Shape, Tensor};
use candle_nn::var_builder::SimpleBackend;
use candle_nn::{Init, VarBuilder};
use candle_transformers::generation::LogitsProcessor;
use candle_transformers::models::llama::{Cache, Config, Llama};

/// A model by its name, and the prompts that it gets.
#[derive(Clone, Copy)]
pub struct Size {
    pub name: &'static str,
    hidden: usize,
    intermediate: usize,
    layers: usize,
    heads: usize,
    key_heads: usize,
    words: usize,
    /// Tokens of the prompts, in turn.
    prompts: &'static [usize],
    /// Tokens of each answer.
    pub answer: usize,
}

/// The sizes: one for a check without a GPU, TinyLlama's, and that of Llama 3 8B.
pub const SIZES: [Size; 3] = [
    Size {
        name: "small",
        hidden: 64,
        intermediate: 128,
        layers: 2,
        heads: 4,
        key_heads: 2,
        words: 500,
        prompts: &[5, 40, 9],
        answer: 8,
    },
    Size {
        name: "1b",
        hidden: 2048,
        intermediate: 5632,
        layers: 22,
        heads: 32,
        key_heads: 4,
        words: 32_000,
        prompts: &[100, 1900, 300, 1200, 60, 700],
        answer: 64,
    },
    Size {
        name: "8b",
        hidden: 4096,
        intermediate: 14_336,
        layers: 32,
        heads: 32,
        key_heads: 8,
        words: 128_256,
        prompts: &[100, 1900, 300, 1200, 60, 700],
        answer: 64,
    },
];

/// What a run took, and what it said.
pub struct Answered {
    /// The times of all tokens but the first of each answer.
    pub tokens: Vec<Duration>,
    /// The times of the prompts, each with its first token.
    pub prompts: Vec<Duration>,
    /// A checksum of all tokens.
    pub said: u64,
}

/// Weights that are drawn at random, in the order in which the model asks for them.
struct Random;

impl SimpleBackend for Random {
    fn get(&self, shape: Shape, name: &str, _: Init, dtype: DType, device: &Device) -> Result<Tensor> {
        if name.ends_with("norm.weight") {
            return Tensor::ones(shape, dtype, device);
        }
        Tensor::randn(0_f32, 0.02, shape, device)?.to_dtype(dtype)
    }

    fn get_unchecked(&self, name: &str, _: DType, _: &Device) -> Result<Tensor> {
        candle_core::bail!("{name} has no shape")
    }

    fn contains_tensor(&self, _: &str) -> bool {
        true
    }
}

impl Size {
    fn config(&self) -> Config {
        Config {
            hidden_size: self.hidden,
            intermediate_size: self.intermediate,
            vocab_size: self.words,
            num_hidden_layers: self.layers,
            num_attention_heads: self.heads,
            num_key_value_heads: self.key_heads,
            use_flash_attn: false,
            rms_norm_eps: 1e-5,
            rope_theta: 10_000.0,
            bos_token_id: None,
            eos_token_id: None,
            rope_scaling: None,
            max_position_embeddings: 4096,
            tie_word_embeddings: false,
        }
    }
}

/// Makes the model and answers the prompts. `look` is called after the weights and after each token, outside of the
/// times.
pub fn answer(size: &Size, device: &Device, mut look: impl FnMut()) -> Result<Answered> {
    let dtype = if device.is_cuda() { DType::BF16 } else { DType::F32 };
    // candle's CPU has no seed.
    if device.is_cuda() {
        device.set_seed(1)?;
    }
    let config = size.config();
    let weights = VarBuilder::from_backend(Box::new(Random), dtype, device.clone());
    let model = Llama::load(weights, &config)?;
    device.synchronize()?;
    look();
    let mut answered = Answered { tokens: Vec::new(), prompts: Vec::new(), said: 0 };
    let mut choose = LogitsProcessor::new(7, None, None);
    for &length in size.prompts {
        let mut cache = Cache::new(true, dtype, &config, device)?;
        let mut next: Vec<u32> = (0..length).map(|place| (place * 7919 % size.words) as u32).collect();
        let mut place = 0;
        for number in 0..size.answer {
            let began = Instant::now();
            let input = Tensor::new(&next[..], device)?.unsqueeze(0)?;
            let logits = model.forward(&input, place, &mut cache)?.squeeze(0)?;
            // The copy of the logits waits for the device, so this is the time of the token.
            let token = choose.sample(&logits)?;
            let took = began.elapsed();
            if number == 0 {
                answered.prompts.push(took)
            } else {
                answered.tokens.push(took)
            }
            answered.said = (answered.said ^ u64::from(token)).wrapping_mul(0x0100_0000_01b3);
            place += next.len();
            next = vec![token];
            drop((input, logits));
            look();
        }
    }
    Ok(answered)
}
