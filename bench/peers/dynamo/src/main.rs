// Copyright (C) the nginx-kv-router authors
//
// The indexes of dynamo-kv-router 1.6.1.

#[path = "../../common/mod.rs"]
mod common;

use std::hint::black_box;
use std::time::Instant;

use common::{Index, Threaded};
use dynamo_kv_router::protocols::*;
use dynamo_kv_router::{ConcurrentRadixTreeCompressed, PositionalIndexer, RadixTree};

const JUMP: usize = 32;

// Not for several threads, and called directly.

struct Plain(RadixTree);

impl Index for Plain {
    fn name(&self) -> &'static str {
        "RadixTree"
    }

    fn apply(&mut self, events: &mut Vec<RouterEvent>) -> f64 {
        let t = Instant::now();
        for event in events.drain(..) {
            self.0.apply_event(event).expect("event");
        }
        t.elapsed().as_nanos() as f64
    }

    fn find(&mut self, hashes: &[LocalBlockHash]) -> (OverlapScores, f64) {
        let hashes = hashes.to_vec();
        let t = Instant::now();
        let scores = black_box(self.0.find_matches(hashes, false));
        (scores, t.elapsed().as_nanos() as f64)
    }
}

fn main() {
    common::run(
        &[
            || Box::new(Plain(RadixTree::new())),
            || {
                Threaded::open(
                    "ConcurrentRadixTreeCompressed",
                    ConcurrentRadixTreeCompressed::new(),
                )
            },
            || Threaded::open("PositionalIndexer", PositionalIndexer::new(JUMP)),
        ],
        true,
    );
}
