// Copyright (C) the nginx-kv-router authors
//
// The rows of ../../index.c for the indexes of Dynamo's own crate, by its
// public interface.  The workload is that of ../../workload.h.
//
//     bench-dynamo [main] [scale]
//
// RadixTree is called directly.  The two concurrent indexes take events in a
// worker loop of their own (SyncIndexer::worker), which is the only public
// way in: the loop runs in a thread, some hundred events at a time wait in its
// queue before it may begin, and what is timed is from its first event to its
// last, in that thread.  So nothing but their own dequeueing is added: see the
// row "an empty event", which is most of what one costs there.  Both threads
// run on one core, so that an event is in the cache of the core that takes it.
// Making events is not timed, dropping them is: the crate takes them by value.

use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::JoinHandle;
use std::time::Instant;

use dynamo_kv_router::indexer::{SyncIndexer, WorkerTask};
use dynamo_kv_router::protocols::*;
use dynamo_kv_router::{ConcurrentRadixTreeCompressed, PositionalIndexer, RadixTree};
use tokio::sync::oneshot;

const DEPTH: usize = 1024;
const SHARED: usize = 256;
const WORKERS: usize = 128;
const STEP: usize = 8;
const ALL: usize = 8;
const QUERIES: usize = 4000;
const SEQUENCES: usize = 1280;
const TOKENS: usize = 65536;
const JUMP: usize = 32;
const BATCH: usize = 512;
const TURNS: usize = 0; // one-block events, sequences take turns

// ---- workload.h -----------------------------------------------------------

fn mix(x: u64) -> u64 {
    let mut x = x.wrapping_add(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d049bb133111eb);
    x ^ x >> 31
}

fn local(s: u64, d: usize) -> LocalBlockHash {
    LocalBlockHash(mix(mix(s).wrapping_add(d as u64)))
}

struct Workload {
    n: usize,
    locals: Vec<LocalBlockHash>,
    handles: Vec<u64>,
}

fn make(kind: char, n: usize) -> Workload {
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

fn from(s: usize) -> usize {
    if s < WORKERS { 0 } else { SHARED }
}

fn pairs(w: &Workload) -> f64 {
    (w.n * (DEPTH - SHARED) + w.n.min(WORKERS) * SHARED) as f64
}

fn query(w: &Workload, q: usize, keep: usize, to: &mut [LocalBlockHash]) {
    let s = (mix((1 << 40) + q as u64) % w.n as u64) as usize;
    to[..keep].copy_from_slice(&w.locals[s * DEPTH..s * DEPTH + keep]);

    for d in keep..DEPTH {
        to[d] = local((1 << 35) + q as u64, d);
    }
}

fn store(w: &Workload, worker: usize, s: usize, d: usize, n: usize) -> RouterEvent {
    let at = s * DEPTH + d;

    RouterEvent::new(
        worker as u64,
        KvCacheEvent {
            event_id: 0,
            dp_rank: 0,
            data: KvCacheEventData::Stored(KvCacheStoreData {
                parent_hash: (d > 0).then(|| ExternalSequenceBlockHash(w.handles[at - 1])),
                start_position: None,
                blocks: (at..at + n)
                    .map(|i| KvCacheStoredBlockData {
                        block_hash: ExternalSequenceBlockHash(w.handles[i]),
                        tokens_hash: w.locals[i],
                        mm_extra_info: None,
                    })
                    .collect(),
            }),
        },
    )
}

fn remove(w: &Workload, worker: usize, s: usize, d: usize, n: usize) -> RouterEvent {
    let end = s * DEPTH + d;

    RouterEvent::new(
        worker as u64,
        KvCacheEvent {
            event_id: 0,
            dp_rank: 0,
            data: KvCacheEventData::Removed(KvCacheRemoveData {
                block_hashes: (end - n..end)
                    .rev()
                    .map(|i| ExternalSequenceBlockHash(w.handles[i]))
                    .collect(),
            }),
        },
    )
}

// ---- the indexes ----------------------------------------------------------

trait Index {
    fn name(&self) -> &'static str;
    fn apply(&mut self, events: &mut Vec<RouterEvent>) -> f64; // ns
    fn find(&mut self, hashes: &[LocalBlockHash]) -> (OverlapScores, f64);
    fn empty_event(&mut self) -> Option<f64> {
        None
    }
}

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

// A gate is a Flush task: its answer wakes a waker, in the worker's thread,
// which notes the time and, when the gate is shut, waits.

struct Gate {
    state: Mutex<(bool, Option<Instant>)>, // open, passed at
    changed: Condvar,
}

impl Gate {
    fn new(open: bool) -> Arc<Gate> {
        Arc::new(Gate { state: Mutex::new((open, None)), changed: Condvar::new() })
    }

    fn open(&self) {
        self.state.lock().unwrap().0 = true;
        self.changed.notify_all();
    }

    fn passed(&self) -> Instant {
        let mut state = self.state.lock().unwrap();
        loop {
            if let Some(at) = state.1 {
                return at;
            }
            state = self.changed.wait(state).unwrap();
        }
    }
}

impl Wake for Gate {
    fn wake(self: Arc<Self>) {
        let at = Instant::now();
        let mut state = self.state.lock().unwrap();

        if state.0 {
            state.1 = Some(at);
            self.changed.notify_all();
            return;
        }

        while !state.0 {
            state = self.changed.wait(state).unwrap();
        }

        state.1 = Some(Instant::now());
        self.changed.notify_all();
    }
}

struct Threaded<T: SyncIndexer> {
    name: &'static str,
    index: Arc<T>,
    queue: flume::Sender<WorkerTask>,
    thread: Option<JoinHandle<()>>,
}

impl<T: SyncIndexer> Threaded<T> {
    fn new(name: &'static str, index: T) -> Self {
        let index = Arc::new(index);
        let (queue, tasks) = flume::unbounded();
        let other = index.clone();
        let thread = std::thread::spawn(move || other.worker(tasks, None).unwrap());

        Threaded { name, index, queue, thread: Some(thread) }
    }

    fn gate(&self, gate: &Arc<Gate>) -> oneshot::Receiver<()> {
        let (answer, mut answered) = oneshot::channel();
        let waker = Waker::from(gate.clone());

        assert!(matches!(
            Pin::new(&mut answered).poll(&mut Context::from_waker(&waker)),
            Poll::Pending
        ));
        self.queue.send(WorkerTask::Flush(answer)).unwrap();
        answered
    }

    fn run(&mut self, tasks: impl Iterator<Item = WorkerTask>) -> f64 {
        let (first, last) = (Gate::new(false), Gate::new(true));
        let _a = self.gate(&first);

        for task in tasks {
            self.queue.send(task).unwrap();
        }

        let _b = self.gate(&last);
        first.open();
        let start = first.passed();
        (last.passed() - start).as_nanos() as f64
    }
}

impl<T: SyncIndexer> Drop for Threaded<T> {
    fn drop(&mut self) {
        let _ = self.queue.send(WorkerTask::Terminate);
        self.thread.take().unwrap().join().unwrap();
    }
}

impl<T: SyncIndexer> Index for Threaded<T> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn apply(&mut self, events: &mut Vec<RouterEvent>) -> f64 {
        let tasks: Vec<_> = events.drain(..).map(WorkerTask::Event).collect();
        self.run(tasks.into_iter())
    }

    fn find(&mut self, hashes: &[LocalBlockHash]) -> (OverlapScores, f64) {
        let t = Instant::now();
        let scores = black_box(self.index.find_matches(hashes, false));
        (scores, t.elapsed().as_nanos() as f64)
    }

    fn empty_event(&mut self) -> Option<f64> {
        let mut v: Vec<f64> = (0..101)
            .map(|_| self.run((0..BATCH).map(|_| WorkerTask::Flush(oneshot::channel().0))))
            .collect();
        Some(median(&mut v) / BATCH as f64)
    }
}

fn open(which: usize) -> Box<dyn Index> {
    match which {
        0 => Box::new(Plain(RadixTree::new())),
        1 => Box::new(Threaded::new(
            "ConcurrentRadixTreeCompressed",
            ConcurrentRadixTreeCompressed::new(),
        )),
        _ => Box::new(Threaded::new("PositionalIndexer", PositionalIndexer::new(JUMP))),
    }
}

// ---- rows -----------------------------------------------------------------

fn say(who: &str, name: &str, unit: &str, value: f64) {
    println!(
        "{{\"who\": \"{who}\", \"name\": \"{name}\", \"unit\": \"{unit}\", \"value\": {value:.2}}}"
    );
}

fn median(v: &mut [f64]) -> f64 {
    v.sort_by(|a, b| a.total_cmp(b));
    v[v.len() / 2]
}

fn clock() -> f64 {
    let mut v: Vec<f64> = (0..1001)
        .map(|_| Instant::now().elapsed().as_nanos() as f64)
        .collect();
    median(&mut v)
}

struct Batch<'a> {
    index: &'a mut dyn Index,
    events: Vec<RouterEvent>,
    ns: f64,
}

impl<'a> Batch<'a> {
    fn new(index: &'a mut dyn Index) -> Self {
        Batch { index, events: Vec::with_capacity(BATCH), ns: 0.0 }
    }

    fn add(&mut self, event: RouterEvent, room: usize) {
        self.events.push(event);
        if self.events.len() >= room {
            self.end();
        }
    }

    fn end(&mut self) -> f64 {
        if !self.events.is_empty() {
            self.ns += self.index.apply(&mut self.events);
        }
        self.ns
    }
}

// some 64 k blocks of long events, BATCH short ones
fn room(n: usize) -> usize {
    (65536 / n.max(1)).clamp(64, BATCH)
}

fn one_core() {
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut set);
        libc::sched_setaffinity(0, std::mem::size_of_val(&set), &set);
    }
}

fn fill(index: &mut dyn Index, w: &Workload, n: usize) -> f64 {
    let mut b = Batch::new(index);

    if n == TURNS {
        for d in 0..DEPTH {
            for s in (0..w.n).take_while(|&s| from(s) <= d) {
                b.add(store(w, s % WORKERS, s, d, 1), room(n));
            }
        }
    } else {
        for s in 0..w.n {
            for d in (from(s)..DEPTH).step_by(n) {
                b.add(store(w, s % WORKERS, s, d, n.min(DEPTH - d)), room(n));
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
                b.add(remove(w, s % WORKERS, s, d, 1), room(n));
            }
        }
    } else {
        for s in (0..w.n).rev() {
            let mut d = DEPTH;
            while d > from(s) {
                let k = n.min(d - from(s));
                b.add(remove(w, s % WORKERS, s, d, k), room(n));
                d -= k;
            }
        }
    }

    b.end() / pairs(w)
}

fn find(index: &mut dyn Index, w: &Workload, keep: usize, clock: f64) -> (f64, f64) {
    let mut hashes = vec![LocalBlockHash(0); DEPTH];
    let mut v: Vec<f64> = (0..QUERIES)
        .map(|q| {
            query(w, q, keep, &mut hashes);
            let (scores, ns) = index.find(&hashes);
            let best = scores.scores.values().max().copied().unwrap_or(0);
            assert_eq!(best as usize, keep, "{}: find", index.name());
            (ns - clock).max(0.0)
        })
        .collect();

    (median(&mut v), v[QUERIES * 99 / 100])
}

fn in_use() -> f64 {
    let info = unsafe { libc::mallinfo2() };
    (info.uordblks + info.hblkhd) as f64
}

fn rows_main(which: usize, clock: f64) {
    let w = make('m', SEQUENCES);
    let before = in_use();
    let mut index = open(which);
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

    let mut w = make('b', WORKERS);
    let mut index = open(which);
    let x = &mut *index;
    let mut events = (0..w.n).map(|s| store(&w, s, s, 0, DEPTH)).collect();
    x.apply(&mut events);
    w.n = 1;
    say(who, "find, 128 branches", "ns", find(x, &w, DEPTH, clock).0);
    drop(index);

    let w = make('a', ALL);
    let before = in_use();
    let mut index = open(which);
    let x = &mut *index;

    for worker in 0..WORKERS {
        let mut events = (0..w.n).map(|s| store(&w, worker, s, 0, DEPTH)).collect();
        x.apply(&mut events);
        drop(events);
    }

    let bytes = in_use() - before;
    say(who, "find, held by all 128", "ns", find(x, &w, DEPTH, clock).0);
    say(
        who,
        "memory a pair, held by all 128",
        "bytes",
        bytes / (ALL * DEPTH * WORKERS) as f64,
    );
}

fn rows_hashing() {
    let tokens: Vec<u32> = (0..TOKENS).map(|i| (mix(i as u64) % 128000) as u32).collect();

    for size in [16, 64] {
        let mut v: Vec<f64> = (0..101)
            .map(|_| {
                let t = Instant::now();
                black_box(compute_block_hash_for_seq(
                    black_box(&tokens),
                    size as u32,
                    BlockHashOptions::default(),
                ));
                t.elapsed().as_nanos() as f64
            })
            .collect();
        let row = format!("hash a block, {size} tokens");
        say("compute_block_hash_for_seq", &row, "ns", median(&mut v) * size as f64 / TOKENS as f64);
    }
}

fn rows_scale(which: usize, clock: f64) {
    for (n, name) in [(96, "0.1 M pairs"), (13000, "10 M pairs")] {
        let w = make('m', n);
        let before = in_use();
        let mut index = open(which);
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

fn main() {
    let rows: Vec<String> = std::env::args().skip(1).collect();
    one_core();
    let clock = clock();

    if rows.is_empty() || rows.iter().any(|r| r == "main") {
        for which in 0..3 {
            rows_main(which, clock);
        }
        rows_hashing();
    }

    if rows.iter().any(|r| r == "scale") {
        for which in 0..3 {
            rows_scale(which, clock);
        }
    }
}
