// Copyright (C) the nginx-kv-router authors
//
// The rows of ../../ for the indexes of Dynamo's crate: what a program for one
// release of it needs, but for the indexes that this release has.
//
//     bench-dynamo [main] [scale] [chat=FILE] [trace=FILE] [worst] [beside]
//
// Each answer is compared with what it must be; a wrong one ends the program,
// but for those of lookups beside a writer, which are counted.

mod beside;
mod index;
mod rows;
mod rows_script;
mod rows_worst;
mod workload;

use dynamo_kv_router::protocols::*;
use std::time::Instant;

pub use index::{Index, Threaded};

const BATCH: usize = 512; // events
const BLOCKS: usize = 65536; // of one batch

pub type Open = fn() -> Box<dyn Index>;

pub fn run(indexes: &[Open], hashing: bool) {
    let rows: Vec<String> = std::env::args().skip(1).collect();
    let everywhere = cores();
    one_core();
    let clock = clock();

    for row in &rows {
        let (row, file) = row.split_once('=').unwrap_or((row, ""));

        if row == "main" && hashing {
            rows::hashing();
        }

        for open in indexes {
            match row {
                "main" => rows::main(*open, clock),
                "scale" => rows::scale(*open, clock),
                "chat" | "trace" => rows_script::script(*open, row, file, clock),
                "worst" => rows_worst::worst(*open, clock),
                "beside" => beside::beside(*open, &everywhere, clock),
                _ => panic!("no such row: {row}"),
            }
        }
    }
}

fn say(who: &str, name: &str, unit: &str, value: f64) {
    println!(
        "{{\"who\": \"{who}\", \"name\": \"{name}\", \"unit\": \"{unit}\", \"value\": {value:.2}}}"
    );
}

fn percentile(v: &mut [f64], p: usize) -> f64 {
    v.sort_by(|a, b| a.total_cmp(b));
    v[v.len() * p / 100]
}

fn median(v: &mut [f64]) -> f64 {
    percentile(v, 50)
}

fn clock() -> f64 {
    let mut v: Vec<f64> = (0..1001)
        .map(|_| Instant::now().elapsed().as_nanos() as f64)
        .collect();
    median(&mut v)
}

fn cores() -> libc::cpu_set_t {
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, std::mem::size_of_val(&set), &mut set);
        set
    }
}

// for this thread, and those that it makes from now on
fn run_on(set: &libc::cpu_set_t) {
    unsafe {
        libc::sched_setaffinity(0, std::mem::size_of_val(set), set);
    }
}

fn one_core() {
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut set);
        run_on(&set);
    }
}

fn in_use() -> f64 {
    let info = unsafe { libc::mallinfo2() };
    (info.uordblks + info.hblkhd) as f64
}

// Events on their way to an index, some hundred at a time.

struct Batch<'a> {
    index: &'a mut dyn Index,
    events: Vec<RouterEvent>,
    blocks: usize,
    ns: f64,
}

impl<'a> Batch<'a> {
    fn new(index: &'a mut dyn Index) -> Self {
        Batch { index, events: Vec::with_capacity(BATCH), blocks: 0, ns: 0.0 }
    }

    fn add(&mut self, event: RouterEvent, blocks: usize) {
        self.events.push(event);
        self.blocks += blocks;
        if self.events.len() >= BATCH || self.blocks >= BLOCKS {
            self.end();
        }
    }

    fn end(&mut self) -> f64 {
        if !self.events.is_empty() {
            self.ns += self.index.apply(&mut self.events);
            self.blocks = 0;
        }
        self.ns
    }
}

// A lookup: the best match, what `worker` has, and how many have any; ns.

struct Found {
    best: usize,
    worker: usize,
    holders: usize,
    ns: f64,
}

fn ask(index: &mut dyn Index, hashes: &[LocalBlockHash], worker: usize, clock: f64) -> Found {
    let (scores, ns) = index.find(hashes);
    let all = || scores.scores.iter().filter(|(_, &n)| n > 0);

    Found {
        best: all().map(|(_, &n)| n).max().unwrap_or(0) as usize,
        worker: all()
            .find(|(w, _)| w.worker_id == worker as u64)
            .map_or(0, |(_, &n)| n as usize),
        holders: all().count(),
        ns: (ns - clock).max(0.0),
    }
}
