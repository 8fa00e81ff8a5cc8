//! The arguments of programs that live long: what differs between passes, what stays, what is in flight.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;
use millpond_replay::Vary;

use super::ReplayArgs;
use crate::failure::Failure;
use crate::headings::LOAD;
use crate::quantity::format_time;

const IN_FLIGHT_HELP: &str = "\
Keep work under way: each allocation queues a piece of work on its stream, and so does each first use on another \
stream. K is a time, such as 50us, which keeps the whole device busy, or 50us:small for kernels that leave most of \
it to others. On the simulated device it may also be a number of events, such as 200, after which a piece is done. \
With 0 no work is under way, even if the trace has recorded how far its device was";

const VARY_HELP: &str = "\
Multiply each size above 1 KiB, in each pass but the first, by a random factor within P percent, from 1% to 99%. The \
default seed is 0";

const KEEP_HELP: &str = "\
Allocate blocks that live for more than half a pass only once, and free them after the last pass, as a program does \
with its weights";

const TOGETHER_HELP: &str = "\
Replay all traces and patterns given as one program on one allocator";

/// The arguments of programs that live long.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LifeArgs {
    #[arg(long, value_name = "K", value_parser = InFlight::parse)]
    #[arg(help = "Keep work under way for a time (50us, 50us:small) or K events (200)", long_help = IN_FLIGHT_HELP)]
    #[arg(help_heading = LOAD)]
    pub(crate) in_flight: Option<InFlight>,
    #[arg(long, value_name = "P%[:seed=N]", value_parser = parse_vary)]
    #[arg(help = "Vary sizes from pass to pass by up to P percent", long_help = VARY_HELP)]
    #[arg(help_heading = LOAD)]
    pub(crate) vary: Option<Vary>,
    #[arg(long, help = "Allocate long-lived blocks once and keep them to the end", long_help = KEEP_HELP)]
    #[arg(help_heading = LOAD)]
    pub(crate) keep: bool,
    #[arg(long, value_name = "HOW", value_enum)]
    #[arg(help = "Replay all traces as one program: alternate or beside", long_help = TOGETHER_HELP)]
    #[arg(help_heading = LOAD)]
    pub(crate) together: Option<Together>,
}

/// How several traces become one program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Together {
    /// One after the other, on the same streams
    Alternate,
    /// At the same time, each on its own streams
    Beside,
}

/// How long work stays under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InFlight {
    /// Not at all, whatever the trace says of its device.
    Nothing,
    /// For a number of events, where the device holds work back.
    Events(u64),
    /// For a time, where its work takes any: each piece keeps the whole device busy.
    Time(Duration),
    /// For a time, in pieces that leave most of the device to others.
    Small(Duration),
}

impl InFlight {
    fn parse(text: &str) -> Result<Self, String> {
        if text == "0" {
            return Ok(Self::Nothing);
        }
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let number = number.parse::<u64>().ok().filter(|number| *number > 0);
        match (number, unit) {
            (Some(events), "") => Ok(Self::Events(events)),
            (Some(time), "us") => Ok(Self::Time(Duration::from_micros(time))),
            (Some(time), "ms") => Ok(Self::Time(Duration::from_millis(time))),
            (Some(time), "us:small") => Ok(Self::Small(Duration::from_micros(time))),
            (Some(time), "ms:small") => Ok(Self::Small(Duration::from_millis(time))),
            _ => Err(format!("`{text}` is neither: write a number of events, such as 200, or a time, such as 50us")),
        }
    }
}

impl fmt::Display for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("0 events"),
            Self::Events(events) => write!(f, "{events} events"),
            Self::Time(time) => f.write_str(&format_time(*time)),
            Self::Small(time) => write!(f, "{} in small kernels", format_time(*time)),
        }
    }
}

fn parse_vary(text: &str) -> Result<Vary, String> {
    let (percent, rest) = text.split_once(':').map_or((text, None), |(percent, rest)| (percent, Some(rest)));
    let percent = percent.strip_suffix('%').and_then(|number| number.parse().ok());
    let percent = percent.filter(|percent| (1..=99).contains(percent));
    let seed = rest.map_or(Some(0), |rest| rest.strip_prefix("seed=")?.parse().ok());
    match (percent, seed) {
        (Some(percent), Some(seed)) => Ok(Vary::new(percent, seed)),
        _ => Err(format!("`{text}` is no variation: write 1% to 99%, such as 5% or 5%:seed=7")),
    }
}

impl ReplayArgs {
    /// Returns whether the passes are one life that differs from a plain replay.
    pub(super) fn is_life(&self) -> bool {
        self.life.in_flight.is_some() || self.life.vary.is_some() || self.life.keep
    }

    /// Returns an error for a life that several threads would have to share.
    pub(super) fn one_thread(&self) -> Result<(), Failure> {
        if self.threads > 1 && self.is_life() {
            let what = "--in-flight, --vary and --keep are for one thread; leave out --threads";
            return Err(Failure::Input(what.into()));
        }
        Ok(())
    }
}

impl LifeArgs {
    /// Returns what is added to the title of the table.
    pub(super) fn title(&self) -> String {
        let vary = self.vary.map_or(String::new(), |vary| format!(", sizes varied by {vary}"));
        let keep = if self.keep { ", long-lived blocks kept" } else { "" };
        let work = match self.in_flight {
            None => String::new(),
            Some(InFlight::Nothing) => ", no work in flight".into(),
            Some(time) => format!(", work in flight for {time}"),
        };
        format!("{vary}{keep}{work}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_in_flight_for_events_or_for_a_time() {
        assert_eq!(InFlight::parse("200"), Ok(InFlight::Events(200)));
        assert_eq!(InFlight::parse("50us"), Ok(InFlight::Time(Duration::from_micros(50))));
        assert_eq!(InFlight::parse("3ms"), Ok(InFlight::Time(Duration::from_millis(3))));
        assert_eq!(InFlight::parse("50us:small"), Ok(InFlight::Small(Duration::from_micros(50))));
        assert_eq!(InFlight::parse("0"), Ok(InFlight::Nothing));
        for text in ["", "00", "0us", "us", "5 us", "-1", "50s", "1.5us", "50:small", "50us:large"] {
            let error = InFlight::parse(text).expect_err(text);
            assert!(error.contains("such as 200") && error.contains("50us"), "{error}");
        }
        assert_eq!(InFlight::Events(50).to_string(), "50 events");
        assert_eq!(InFlight::Time(Duration::from_micros(50)).to_string(), "50.0 us");
    }

    #[test]
    fn sizes_vary_by_a_percentage_and_a_seed() {
        assert_eq!(parse_vary("5%"), Ok(Vary::new(5, 0)));
        assert_eq!(parse_vary("99%:seed=7"), Ok(Vary::new(99, 7)));
        for text in ["", "5", "%", "0%", "100%", "-5%", "5%:", "5%:7", "5%:seed=x", "5.5%"] {
            let error = parse_vary(text).expect_err(text);
            assert!(error.contains("1% to 99%") && error.contains("5%:seed=7"), "{error}");
        }
    }
}
