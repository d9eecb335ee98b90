// Copyright (C) the nginx-kv-router authors
//
// Scripts (../../script.py): chats, and a recorded trace.

use super::workload::*;
use super::*;

struct Played {
    store_ns: f64,
    remove_ns: f64,
    bytes: f64, // in use before the first removal
    finds: Vec<f64>,
}

pub fn script(open: Open, name: &str, file: &str, clock: f64) {
    let s = workload::script(file);
    let before = in_use();
    let mut index = open();
    let x = &mut *index;
    let who = x.name();

    let bytes = play(x, &s, clock).bytes - before;
    let mut p = play(x, &s, clock);

    say(who, &format!("{name}: find"), "ns", median(&mut p.finds));
    say(who, &format!("{name}: find, p99"), "ns", percentile(&mut p.finds, 99));
    say(who, &format!("{name}: store"), "ns/block", p.store_ns / s.pairs);
    say(who, &format!("{name}: remove"), "ns/block", p.remove_ns / s.pairs);
    say(who, &format!("{name}: memory a pair"), "bytes", bytes / s.pairs);
}

// Events that follow each other are timed together.

fn play(index: &mut dyn Index, s: &Script, clock: f64) -> Played {
    let mut p = Played { store_ns: 0.0, remove_ns: 0.0, bytes: 0.0, finds: Vec::new() };

    for ops in s.ops.chunk_by(|a, b| a.kind == b.kind) {
        if ops[0].kind == b'f' {
            p.finds.extend(ops.iter().map(|op| asked(index, s, op, clock)));
            continue;
        }

        if ops[0].kind == b'r' && p.bytes == 0.0 {
            p.bytes = in_use() - (p.finds.capacity() * std::mem::size_of::<f64>()) as f64;
        }

        let mut b = Batch::new(index);

        for op in ops {
            let at = s.starts[op.prompt] + op.from;
            let handles = &s.handles[at..at + op.n];

            if op.kind == b's' {
                let parent = (op.from > 0).then(|| s.handles[at - 1]);
                b.add(stored(op.worker, parent, handles, &s.locals[at..at + op.n]), op.n);
            } else {
                b.add(removed(op.worker, handles), op.n);
            }
        }

        *if ops[0].kind == b's' { &mut p.store_ns } else { &mut p.remove_ns } += b.end();
    }

    for op in s.ops.iter().filter(|op| op.kind == b'f') {
        let at = s.starts[op.prompt];
        let found = ask(index, &s.locals[at..at + op.n], 0, clock);
        assert_eq!(found.holders, 0, "{}: not empty", index.name());
    }

    p
}

fn asked(index: &mut dyn Index, s: &Script, op: &Op, clock: f64) -> f64 {
    let at = s.starts[op.prompt];
    let hashes = s.locals[at..at + op.n].to_vec(); // now in the cache
    let found = ask(index, &hashes, op.worker, clock);

    assert_eq!(found.best, op.from, "{}: a script's find", index.name());
    assert_eq!(found.holders, op.holders, "{}: who holds a script's prompt", index.name());
    assert!(
        found.best == 0 || found.worker == found.best,
        "{}: the best holder of a script's prompt",
        index.name()
    );

    found.ns
}
