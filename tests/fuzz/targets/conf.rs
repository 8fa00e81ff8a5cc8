//! Any text: the parser returns, the position of an error lies in the text, and accepted settings can be written and
//! parsed again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use millpond::conf;

fuzz_target!(|text: &str| {
    match conf::parse(text) {
        Err(error) => {
            assert!(text.is_char_boundary(error.position), "{error}");
            assert!(error.to_string().len() < 2000, "{error}");
        }
        Ok(settings) => {
            let written = conf::write(&settings);
            assert_eq!(conf::parse(&written).as_ref(), Ok(&settings), "{written}");
            let over = conf::parse_over(settings.clone(), text).expect("a text that parses does so over itself");
            assert_eq!(over.options, settings);
        }
    }
});
