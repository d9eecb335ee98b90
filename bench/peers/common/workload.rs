// Copyright (C) the nginx-kv-router authors
//
// What is stored and asked: ../../workload.h in Rust, and the scripts of
// ../../script.py; events as the crate wants them.

use dynamo_kv_router::protocols::*;

pub const DEPTH: usize = 1024;
pub const SHARED: usize = 256;
pub const WORKERS: usize = 128;
pub const STEP: usize = 8;
pub const ALL: usize = 8;
pub const QUERIES: usize = 4000;
pub const SEQUENCES: usize = 1280;
pub const ONES: usize = 262144;
pub const STAIRS: usize = 128;
pub const HASHED: [(usize, u64); 2] = [(16, 0xa91ae5c2161e6ae2), (64, 0x5f9c613a235bcd6d)];

pub fn mix(x: u64) -> u64 {
    let mut x = x.wrapping_add(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d049bb133111eb);
    x ^ x >> 31
}

pub fn local(s: u64, d: usize) -> LocalBlockHash {
    LocalBlockHash(mix(mix(s).wrapping_add(d as u64)))
}

// ---- sequences of 1024 blocks ----------------------------------------------

pub struct Workload {
    pub n: usize,
    pub locals: Vec<LocalBlockHash>,
    pub handles: Vec<u64>,
}

pub fn make(kind: char, n: usize) -> Workload {
    let mut w = Workload { n, locals: Vec::new(), handles: Vec::new() };

    for s in 0..n {
        let l: Vec<_> = (0..DEPTH)
            .map(|d| {
                let from = match kind {
                    'm' if d < SHARED => (1 << 32) + s % 4,
                    'm' => s,
                    'b' if s == 0 || d < s * STEP => 0,
                    'b' => (1 << 33) + s,
                    _ => (1 << 34) + s,
                };
                local(from as u64, d)
            })
            .collect();

        w.handles.extend(compute_seq_hash_for_block(&l));
        w.locals.extend(l);
    }

    w
}

pub fn from(s: usize) -> usize {
    if s < WORKERS { 0 } else { SHARED }
}

pub fn pairs(w: &Workload) -> f64 {
    (w.n * (DEPTH - SHARED) + w.n.min(WORKERS) * SHARED) as f64
}

// the sequence asked for, and its first `keep` blocks, others behind them
pub fn query(w: &Workload, q: usize, keep: usize, to: &mut [LocalBlockHash]) -> usize {
    let s = (mix((1 << 40) + q as u64) % w.n as u64) as usize;
    to[..keep].copy_from_slice(&w.locals[s * DEPTH..s * DEPTH + keep]);

    for d in keep..DEPTH {
        to[d] = local((1 << 35) + q as u64, d);
    }

    s
}

// ---- the worst shapes ------------------------------------------------------

pub fn one(i: usize) -> LocalBlockHash {
    local((1 << 36) + i as u64, 0)
}

// where step d of staircase s is; the end behind it is the next
pub fn stair(s: usize, d: usize) -> usize {
    (s * DEPTH + d) * 2
}

pub fn stairs() -> Workload {
    let mut w = Workload { n: STAIRS, locals: Vec::new(), handles: Vec::new() };
    let chain = |parent, l| compute_seq_hash_for_block(&[LocalBlockHash(parent), l])[1];

    for s in 0..STAIRS {
        for d in 0..DEPTH {
            let step = local((1 << 37) + s as u64, d);
            let end = local((1 << 38) + s as u64, d);
            let handle = if d == 0 { step.0 } else { chain(w.handles[w.handles.len() - 2], step) };

            w.locals.extend([step, end]);
            w.handles.extend([handle, chain(handle, end)]);
        }
    }

    w
}

// ---- scripts ---------------------------------------------------------------

pub struct Op {
    pub kind: u8,
    pub worker: usize,
    pub prompt: usize,
    pub from: usize,
    pub n: usize,
    pub holders: usize,
}

pub struct Script {
    pub pairs: f64,
    pub ops: Vec<Op>,
    pub starts: Vec<usize>, // of each prompt, in:
    pub locals: Vec<LocalBlockHash>,
    pub handles: Vec<u64>,
}

pub fn script(file: &str) -> Script {
    let bytes = std::fs::read(file).expect(file);
    let word = |i: usize| u32::from_le_bytes(bytes[i * 4..i * 4 + 4].try_into().unwrap());
    let at = |i: usize| word(i) as usize;
    assert_eq!(word(0), 0x3142564b, "{file}: not a script");

    let (prompts, segments, ops) = (at(1), at(2), at(3));
    let (first_segment, first_op) = (4 + prompts, 4 + prompts + segments * 4);
    let mut s = Script {
        pairs: 0.0,
        ops: Vec::with_capacity(ops),
        starts: Vec::new(),
        locals: Vec::new(),
        handles: Vec::new(),
    };
    let mut i = first_segment;

    for p in 0..prompts {
        s.starts.push(s.locals.len());

        for _ in 0..at(4 + p) {
            let number = word(i) as u64 | (word(i + 1) as u64) << 32;
            s.locals.extend((0..at(i + 2)).map(|d| local(number, d)));
            i += 4;
        }

        s.handles.extend(compute_seq_hash_for_block(&s.locals[s.starts[p]..]));
    }

    for i in (0..ops).map(|k| first_op + k * 6) {
        s.ops.push(Op {
            kind: word(i) as u8,
            worker: at(i + 1),
            prompt: at(i + 2),
            from: at(i + 3),
            n: at(i + 4),
            holders: at(i + 5),
        });
    }

    s.pairs = s.ops.iter().filter(|op| op.kind == b's').map(|op| op.n as f64).sum();
    s
}

// ---- events ----------------------------------------------------------------

// blocks that follow each other, behind a parent's handle
pub fn stored(
    worker: usize,
    parent: Option<u64>,
    handles: &[u64],
    locals: &[LocalBlockHash],
) -> RouterEvent {
    RouterEvent::new(
        worker as u64,
        KvCacheEvent {
            event_id: 0,
            dp_rank: 0,
            data: KvCacheEventData::Stored(KvCacheStoreData {
                parent_hash: parent.map(ExternalSequenceBlockHash),
                start_position: None,
                blocks: handles
                    .iter()
                    .zip(locals)
                    .map(|(&handle, &local)| KvCacheStoredBlockData {
                        block_hash: ExternalSequenceBlockHash(handle),
                        tokens_hash: local,
                        mm_extra_info: None,
                    })
                    .collect(),
            }),
        },
    )
}

// the last one first
pub fn removed(worker: usize, handles: &[u64]) -> RouterEvent {
    RouterEvent::new(
        worker as u64,
        KvCacheEvent {
            event_id: 0,
            dp_rank: 0,
            data: KvCacheEventData::Removed(KvCacheRemoveData {
                block_hashes: handles
                    .iter()
                    .rev()
                    .map(|&handle| ExternalSequenceBlockHash(handle))
                    .collect(),
            }),
        },
    )
}

// blocks [d, d + n) of sequence s
pub fn store(w: &Workload, worker: usize, s: usize, d: usize, n: usize) -> RouterEvent {
    let at = s * DEPTH + d;
    let parent = (d > 0).then(|| w.handles[at - 1]);
    stored(worker, parent, &w.handles[at..at + n], &w.locals[at..at + n])
}

// the last n of sequence s below d
pub fn remove(w: &Workload, worker: usize, s: usize, d: usize, n: usize) -> RouterEvent {
    let end = s * DEPTH + d;
    removed(worker, &w.handles[end - n..end])
}
