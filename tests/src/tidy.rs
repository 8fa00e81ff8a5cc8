//! The rules of the repository, each a function from its text files to the places that break the rule.
//!
//! A rule reads nothing but the files it is given, so that each can be tested on a file that breaks it.

use std::fmt;

mod backends;
mod commands;
mod embedding;
mod explained;
mod growing;
mod imports;
mod layers;
mod links;
mod locks;
mod origins;
mod packages;
mod prose;
mod purity;
mod shape;
mod twins;
mod unsafety;
mod vocabulary;
mod wording;

pub use backends::{backends_have_the_rooms, rooms_left_out, rooms_name_those_above};
pub use commands::backends_in_one_table;
pub use embedding::embedding_needs_no_c_compiler;
pub use explained::explained_words;
pub use growing::contract_can_grow;
pub use layers::layer_order;
pub use links::{links_resolve, pages_are_in_the_book};
pub use locks::locks_are_up_to_date;
pub use origins::package_origins;
pub use packages::{packages_are_complete, packages_have_an_order, packages_stand_alone};
pub use prose::{phrases_are_plain, prose_is_plain};
pub use purity::{contract_names_no_vendor, core_is_pure};
pub use shape::{file_length, function_length, line_width};
pub use twins::twins_have_the_same;
pub use unsafety::{unsafe_in_its_rooms, unsafe_is_justified};
pub use vocabulary::one_vocabulary;
pub use wording::{crates_have_readmes, forbidden_words, no_ignored_tests, no_markers};

/// One place that breaks a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The file, from the root of the repository.
    pub path: String,
    /// The line, counted from 1; 0 if it is about the file as a whole.
    pub line: usize,
    /// A description of what is wrong and what to do.
    pub what: String,
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}
