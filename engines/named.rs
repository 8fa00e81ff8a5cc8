//! What a command line names, such as the rows of a table.

use clap::builder::{PossibleValuesParser, TypedValueParser};

/// Returns a parser of one name of many. `--help` and errors list the names.
pub fn one_of<T: Copy + Send + Sync + 'static>(
    all: &'static [T],
    name: fn(&T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(all.iter().map(name)).map(move |word| {
        let named = all.iter().find(|one| name(one) == word);
        *named.expect("clap accepts no other names")
    })
}
