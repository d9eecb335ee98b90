// Copyright (C) the nginx-kv-router authors
//
// Sequences of 1024 blocks on 128 workers: 1 M pairs, fewer, more.

use super::workload::*;
use super::*;
use std::hint::black_box;

const TOKENS: usize = 65536;
const TURNS: usize = 0; // one-block events, sequences take turns

pub fn fill(index: &mut dyn Index, w: &Workload, n: usize) -> f64 {
    let mut b = Batch::new(index);

    if n == TURNS {
        for d in 0..DEPTH {
            for s in (0..w.n).take_while(|&s| from(s) <= d) {
                b.add(store(w, s % WORKERS, s, d, 1), 1);
            }
        }
    } else {
        for s in 0..w.n {
            for d in (from(s)..DEPTH).step_by(n) {
                b.add(store(w, s % WORKERS, s, d, n.min(DEPTH - d)), n);
            }
        }
    }

    b.end() / pairs(w)
}

fn empty(index: &mut dyn Index, w: &Workload, n: usize) -> f64 {
    let mut b = Batch::new(index);

    if n == TURNS {
        for d in (1..=DEPTH).rev() {
            for s in (0..w.n).take_while(|&s| from(s) < d) {
                b.add(remove(w, s % WORKERS, s, d, 1), 1);
            }
        }
    } else {
        for s in (0..w.n).rev() {
            let mut d = DEPTH;
            while d > from(s) {
                let k = n.min(d - from(s));
                b.add(remove(w, s % WORKERS, s, d, k), k);
                d -= k;
            }
        }
    }

    let ns = b.end() / pairs(w);

    for s in 0..w.n {
        let hashes = &w.locals[s * DEPTH..(s + 1) * DEPTH];
        assert_eq!(ask(index, hashes, 0, 0.0).holders, 0, "not empty");
    }

    ns
}

fn find(index: &mut dyn Index, w: &Workload, keep: usize, clock: f64) -> (f64, f64) {
    let mut hashes = vec![LocalBlockHash(0); DEPTH];
    let mut v: Vec<f64> = (0..QUERIES)
        .map(|q| {
            let s = query(w, q, keep, &mut hashes);
            let found = ask(index, &hashes, s % WORKERS, clock);
            assert_eq!(found.best, keep, "{}: find", index.name());
            assert_eq!(found.worker, keep, "{}: its worker", index.name());
            found.ns
        })
        .collect();

    (median(&mut v), percentile(&mut v, 99))
}

pub fn main(open: Open, clock: f64) {
    let w = make('m', SEQUENCES);
    let before = in_use();
    let mut index = open();
    let x = &mut *index;
    let who = x.name();

    fill(x, &w, DEPTH);
    let bytes = in_use() - before;
    empty(x, &w, DEPTH);

    for n in [DEPTH, 64, 1, TURNS] {
        let event = match n {
            TURNS => "1 block an event, in turns".to_string(),
            1 => "1 block an event".to_string(),
            _ => format!("{n} blocks an event"),
        };
        say(who, &format!("store, {event}"), "ns/block", fill(x, &w, n));

        if n == 64 {
            let (hit, p99) = find(x, &w, DEPTH, clock);
            say(who, "find, hit", "ns", hit);
            say(who, "find, hit, p99", "ns", p99);
            say(who, "find, half", "ns", find(x, &w, 512, clock).0);
            say(who, "find, shared prefix", "ns", find(x, &w, SHARED, clock).0);
            say(who, "find, miss", "ns", find(x, &w, 0, clock).0);
            say(who, "memory a pair", "bytes", bytes / pairs(&w));
        }

        if n == TURNS {
            let (hit, _) = find(x, &w, DEPTH, clock);
            say(who, "find, hit, grown by decode", "ns", hit);
        }

        say(who, &format!("remove, {event}"), "ns/block", empty(x, &w, n));
    }

    if let Some(ns) = x.empty_event() {
        say(who, "an empty event", "ns", ns);
    }

    drop(index);
    drop(w);

    branches(open, clock);
    all(open, clock);
}

fn branches(open: Open, clock: f64) {
    let mut w = make('b', WORKERS);
    let mut index = open();
    let x = &mut *index;
    let mut events = (0..w.n).map(|s| store(&w, s, s, 0, DEPTH)).collect();

    x.apply(&mut events);
    w.n = 1;
    say(x.name(), "find, 128 branches", "ns", find(x, &w, DEPTH, clock).0);

    for s in 1..WORKERS {
        let found = ask(x, &w.locals[..DEPTH], s, clock);
        assert_eq!(found.worker, s * STEP, "{}: a branch's depth", x.name());
    }
}

fn all(open: Open, clock: f64) {
    let w = make('a', ALL);
    let before = in_use();
    let mut index = open();
    let x = &mut *index;

    for worker in 0..WORKERS {
        let mut events = (0..w.n).map(|s| store(&w, worker, s, 0, DEPTH)).collect();
        x.apply(&mut events);
        drop(events);
    }

    let bytes = in_use() - before;
    say(x.name(), "find, held by all 128", "ns", find(x, &w, DEPTH, clock).0);
    assert_eq!(ask(x, &w.locals[..DEPTH], 0, clock).holders, WORKERS);
    say(
        x.name(),
        "memory a pair, held by all 128",
        "bytes",
        bytes / (ALL * DEPTH * WORKERS) as f64,
    );
}

pub fn scale(open: Open, clock: f64) {
    for (n, name) in [(96, "0.1 M pairs"), (13000, "10 M pairs")] {
        let w = make('m', n);
        let before = in_use();
        let mut index = open();
        let x = &mut *index;
        let who = x.name();

        fill(x, &w, 64);
        let bytes = in_use() - before;
        empty(x, &w, 64);

        let row = format!("{name}: store, 64 blocks an event");
        say(who, &row, "ns/block", fill(x, &w, 64));
        let (hit, p99) = find(x, &w, DEPTH, clock);
        say(who, &format!("{name}: find, hit"), "ns", hit);
        say(who, &format!("{name}: find, hit, p99"), "ns", p99);
        say(who, &format!("{name}: find, miss"), "ns", find(x, &w, 0, clock).0);
        say(who, &format!("{name}: memory a pair"), "bytes", bytes / pairs(&w));
        let row = format!("{name}: remove, 64 blocks an event");
        say(who, &row, "ns/block", empty(x, &w, 64));
    }
}

pub fn hashing() {
    let tokens: Vec<u32> = (0..TOKENS).map(|i| (mix(i as u64) % 128000) as u32).collect();

    for (size, hashed) in HASHED {
        let mut v: Vec<f64> = (0..101)
            .map(|_| {
                let t = Instant::now();
                let hashes = black_box(compute_block_hash_for_seq(
                    black_box(&tokens),
                    size as u32,
                    BlockHashOptions::default(),
                ));
                let ns = t.elapsed().as_nanos() as f64;
                assert_eq!(hashes.iter().fold(0, |a, h| a ^ h.0), hashed, "hashes");
                ns
            })
            .collect();
        let row = format!("hash a block, {size} tokens");
        say("compute_block_hash_for_seq", &row, "ns", median(&mut v) * size as f64 / TOKENS as f64);
    }
}
