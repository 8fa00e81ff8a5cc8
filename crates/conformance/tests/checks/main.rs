//! The suite, the oracle and what is built on them: they find what is planted, and nothing where nothing is wrong.

mod beyond;
mod broken;
mod golden;
mod opened;
mod oracle;
mod scrubbing;
mod shrink;
mod soak;
mod suite;
mod swarm;
