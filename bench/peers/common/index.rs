// Copyright (C) the nginx-kv-router authors
//
// The crate's indexes, by its public interface.
//
// RadixTree is called directly.  The concurrent indexes take events in a
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
use tokio::sync::oneshot;

use super::{median, BATCH};

pub trait Index {
    fn name(&self) -> &'static str;
    fn apply(&mut self, events: &mut Vec<RouterEvent>) -> f64; // ns
    fn find(&mut self, hashes: &[LocalBlockHash]) -> (OverlapScores, f64);

    fn empty_event(&mut self) -> Option<f64> {
        None
    }

    // what readers and the writer of a concurrent index share
    fn shared(&self) -> Option<(Arc<dyn SyncIndexer>, flume::Sender<WorkerTask>)> {
        None
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

pub struct Threaded<T: SyncIndexer> {
    name: &'static str,
    index: Arc<T>,
    queue: flume::Sender<WorkerTask>,
    thread: Option<JoinHandle<()>>,
}

impl<T: SyncIndexer> Threaded<T> {
    pub fn open(name: &'static str, index: T) -> Box<dyn Index> {
        let index = Arc::new(index);
        let (queue, tasks) = flume::unbounded();
        let other = index.clone();
        let thread = std::thread::spawn(move || other.worker(tasks, None).unwrap());

        Box::new(Threaded { name, index, queue, thread: Some(thread) })
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

    fn shared(&self) -> Option<(Arc<dyn SyncIndexer>, flume::Sender<WorkerTask>)> {
        Some((self.index.clone(), self.queue.clone()))
    }
}
