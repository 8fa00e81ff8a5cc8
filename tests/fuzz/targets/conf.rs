//! Any text: the parser answers, its position lies in the text, and what it accepts survives being written.

#![no_main]

use libfuzzer_sys::fuzz_target;
use millpond_core::conf;

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
            assert_eq!(over.settings, settings);
        }
    }
});
