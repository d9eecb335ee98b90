// Copyright (C) the nginx-kv-router authors
//
// The shapes that take most memory: prompts of one block, and staircases,
// which leave their own way again after each block.

use super::workload::*;
use super::*;

pub fn worst(open: Open, clock: f64) {
    one_block(open, clock);
    staircase(open, clock);
}

fn one_block(open: Open, clock: f64) {
    let l: Vec<_> = (0..ONES).map(one).collect();
    let handles: Vec<_> = l.iter().map(|l| l.0).collect();
    let before = in_use();
    let mut index = open();
    let x = &mut *index;
    let who = x.name();
    let mut removal = 0.0;

    for pass in 0..2 {
        let mut b = Batch::new(x);

        for i in 0..ONES {
            b.add(stored(i % WORKERS, None, &handles[i..i + 1], &l[i..i + 1]), 1);
        }

        let ns = b.end() / ONES as f64;
        drop(b);

        if pass == 0 {
            let bytes = in_use() - before;
            say(who, "one-block prompts: memory a pair", "bytes", bytes / ONES as f64);
        } else {
            say(who, "one-block prompts: store", "ns", ns);
            let mut v: Vec<f64> = (0..QUERIES)
                .map(|q| {
                    let i = (mix((1 << 40) + q as u64) % ONES as u64) as usize;
                    let found = ask(x, &l[i..i + 1], i % WORKERS, clock);
                    assert_eq!((found.best, found.worker), (1, 1), "{who}: find of one block");
                    let none = ask(x, &[one(ONES + q)], 0, clock);
                    assert_eq!(none.best, 0, "{who}: find of no block");
                    found.ns
                })
                .collect();
            say(who, "one-block prompts: find", "ns", median(&mut v));
        }

        let mut b = Batch::new(x);

        for i in (0..ONES).rev() {
            b.add(removed(i % WORKERS, &handles[i..i + 1]), 1);
        }

        removal = b.end() / ONES as f64;

        for i in 0..ONES {
            assert_eq!(ask(x, &l[i..i + 1], 0, clock).holders, 0, "{who}: not empty");
        }
    }

    say(who, "one-block prompts: remove", "ns", removal);
}

fn staircase(open: Open, clock: f64) {
    let w = stairs();
    let pairs = (STAIRS * DEPTH * 2) as f64;
    let spine = |s: usize, n: usize| -> Vec<_> { (0..n).map(|d| w.locals[stair(s, d)]).collect() };
    let before = in_use();
    let mut index = open();
    let x = &mut *index;
    let who = x.name();
    let mut removal = 0.0;

    for pass in 0..2 {
        let mut b = Batch::new(x);

        for d in 0..DEPTH {
            for s in 0..STAIRS {
                let at = stair(s, d);
                let parent = (d > 0).then(|| w.handles[at - 2]);
                b.add(stored(s, parent, &w.handles[at..at + 2], &w.locals[at..at + 2]), 2);
            }
        }

        let ns = b.end() / pairs;
        drop(b);

        if pass == 0 {
            say(who, "staircase: memory a pair", "bytes", (in_use() - before) / pairs);
        } else {
            say(who, "staircase: store", "ns/block", ns);
            let mut v: Vec<f64> = (0..QUERIES)
                .map(|q| {
                    let s = (mix((1 << 40) + q as u64) % STAIRS as u64) as usize;
                    let mut hashes = spine(s, DEPTH);
                    let found = ask(x, &hashes, s, clock);
                    assert_eq!((found.best, found.worker), (DEPTH, DEPTH), "{who}: a staircase");

                    let d = q % DEPTH;
                    hashes.truncate(d + 1);
                    hashes.push(w.locals[stair(s, d) + 1]);
                    hashes.push(LocalBlockHash(0));
                    assert_eq!(ask(x, &hashes, s, clock).best, d + 2, "{who}: a stair");
                    found.ns
                })
                .collect();
            say(who, "staircase: find", "ns", median(&mut v));
        }

        let mut b = Batch::new(x);

        for d in (0..DEPTH).rev() {
            for s in (0..STAIRS).rev() {
                let at = stair(s, d);
                b.add(removed(s, &w.handles[at..at + 2]), 2);
            }
        }

        removal = b.end() / pairs;

        for s in 0..STAIRS {
            let found = ask(x, &spine(s, DEPTH), s, clock);
            assert_eq!(found.holders, 0, "{who}: not empty");
        }
    }

    say(who, "staircase: remove", "ns/block", removal);
}
