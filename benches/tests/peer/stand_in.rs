//! A peer for the tests of the comparison: the host's allocator behind the protocol of `benches/gpu/peers.cpp`, with
//! strict checks of its lists. Some of its names fail on purpose.

use std::fs;
use std::io::{BufRead, stdin};
use std::time::Instant;

/// The names that it serves. `malloc` and `cudaMalloc` do everything; each of the others fails in its own way.
const NAMES: [&str; 6] = ["malloc", "cudaMalloc", "refuses", "dies", "babbles", "skips"];

#[derive(Clone, Copy)]
struct Op {
    bytes: u64,
    slot: usize,
}

/// The three lists of a workload, and its slots.
struct Game {
    prepare: Vec<Op>,
    timed: Vec<Op>,
    finish: Vec<Op>,
    slots: Vec<Option<Box<[u8; 64]>>>,
    blocks: u64,
}

impl Game {
    fn read(path: &str) -> Result<Self, String> {
        let data = fs::read(path).map_err(|error| format!("{path}: {error}"))?;
        let (magic, rest) = data.split_at_checked(8).ok_or("no head")?;
        let (head, ops) = rest.split_at_checked(24).ok_or("no numbers")?;
        if magic != b"MPOPS-01" || !ops.len().is_multiple_of(16) {
            return Err(format!("{path} is no workload"));
        }
        let number = |bytes: &[u8]| u32::from_ne_bytes(bytes.try_into().expect("4 bytes"));
        let head: Vec<usize> = head.chunks(4).map(|bytes| number(bytes) as usize).collect();
        let op = |bytes: &[u8]| {
            let (slot, stream) = (number(&bytes[8..12]) as usize, number(&bytes[12..]) as usize);
            assert!(slot < head[0] && stream < head[1], "slot {slot} on stream {stream} of {head:?}");
            Op { bytes: u64::from_ne_bytes(bytes[..8].try_into().expect("8 bytes")), slot }
        };
        let mut ops = ops.chunks(16).map(op);
        let mut list = |count: usize| ops.by_ref().take(count).collect::<Vec<_>>();
        let (prepare, timed, finish) = (list(head[2]), list(head[3]), list(head[4]));
        assert_eq!((ops.next().is_none(), head[5]), (true, 0), "what {head:?} announces is all there is");
        Ok(Self { prepare, timed, finish, slots: (0..head[0]).map(|_| None).collect(), blocks: 0 })
    }

    fn play(&mut self, list: fn(&Game) -> &Vec<Op>) -> Result<u128, String> {
        let ops = list(self).clone();
        let start = Instant::now();
        for Op { bytes, slot } in ops {
            let full = self.slots[slot].is_some();
            if full == (bytes > 0) {
                return Err(format!("slot {slot} is {}", if full { "full" } else { "empty" }));
            }
            self.slots[slot] = (bytes > 0).then(|| Box::new([0; 64]));
            self.blocks += u64::from(bytes > 0);
        }
        Ok(start.elapsed().as_nanos().max(1))
    }

    fn pass(&mut self) -> Result<u128, String> {
        let time = self.play(|game| &game.timed)?;
        self.play(|game| &game.finish)?;
        Ok(time)
    }
}

fn answer(name: &str, games: &mut Vec<Game>, request: &str) -> Result<String, String> {
    let words: Vec<&str> = request.split(' ').collect();
    match (name, words[0]) {
        ("dies", "passes") => std::process::exit(3),
        ("babbles", "passes") => return Ok("soon".to_owned()),
        _ => {}
    }
    let (name_of_first, first) = ("a workload is loaded first", games.first_mut());
    Ok(match words[0] {
        "load" => {
            games.push(Game::read(&request["load ".len()..])?);
            String::new()
        }
        "prepare" => {
            let times: Result<Vec<_>, _> = games.iter_mut().map(|game| game.play(|game| &game.prepare)).collect();
            times?.iter().sum::<u128>().to_string()
        }
        "passes" => format!("{} ", first.ok_or(name_of_first)?.pass()?),
        "peak" => if name == "malloc" { "4096" } else { "-1" }.to_owned(),
        "singles" => format!("{} 1.5 2.5 3.5 4.5 10", first.ok_or(name_of_first)?.timed.len()),
        "evicted" => {
            let (ops, stride) = (first.ok_or(name_of_first)?.timed.len(), words[1].parse::<usize>());
            format!("{} 11.5 12.5 13.5 14.5 10", ops.div_ceil(stride.map_err(|_| "no stride")?))
        }
        "verify" => {
            let game = first.ok_or(name_of_first)?;
            game.slots.fill_with(|| None);
            game.blocks = 0;
            game.play(|game| &game.prepare)?;
            game.pass()?;
            (game.blocks - u64::from(name == "skips")).to_string()
        }
        "race" => {
            let threads: usize = words[1].parse().map_err(|_| "no number of threads")?;
            if threads > games.len() {
                return Err(format!("{threads} threads of {}", games.len()));
            }
            format!("{} {}", 100.0 / threads as f64, if name == "malloc" { "100" } else { "-1" })
        }
        "drop" => {
            games.clear();
            String::new()
        }
        _ => return Err(format!("unknown request {request}")),
    })
}

fn main() {
    let name = std::env::args().nth(1).expect("a name or --list");
    if name == "--list" {
        NAMES.iter().for_each(|name| println!("{name}"));
        return;
    }
    if name == "refuses" {
        println!("error there is no memory to speak of");
        std::process::exit(1);
    }
    println!("ok the host's allocator");
    let mut games = Vec::new();
    for line in stdin().lock().lines() {
        match answer(&name, &mut games, &line.expect("UTF-8")) {
            Ok(answer) => println!("ok {answer}"),
            Err(error) => {
                println!("error {error}");
                std::process::exit(1);
            }
        }
    }
}
