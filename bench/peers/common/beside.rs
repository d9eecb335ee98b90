// Copyright (C) the nginx-kv-router authors
//
// Finds beside a writer, in threads: readers call find_matches, the writer is
// the index's own worker loop, and one more thread makes its events and puts
// them into its queue, at a rate; it waits for each round of 1024 blocks.
// What is written is what our writer writes, see ../../rows_beside.c.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dynamo_kv_router::indexer::WorkerTask;
use tokio::sync::oneshot;

use super::workload::*;
use super::*;

const SAMPLES: usize = 200000; // of one reader
const LONG: Duration = Duration::from_millis(1500);

pub fn beside(open: Open, everywhere: &libc::cpu_set_t, clock: f64) {
    if open().shared().is_none() {
        return;
    }

    let w = make('m', SEQUENCES);
    let here = cores();
    run_on(everywhere);

    for readers in [1, 2] {
        for (rate, name) in [(0, "0"), (100000, "100 k"), (1000000, "1 M")] {
            let s = if readers == 1 { "" } else { "s" };
            let name = format!("{readers} reader{s}, {name} blocks/s written");
            row(open, &w, &name, readers, rate, clock);
        }
    }

    run_on(&here);
}

fn row(open: Open, w: &Workload, name: &str, readers: usize, rate: u64, clock: f64) {
    let mut index = open();
    let who = index.name();
    rows::fill(&mut *index, w, 64);

    let (shared, queue) = index.shared().unwrap();
    let stop = AtomicBool::new(false);

    let (mut ns, wrong, written) = std::thread::scope(|scope| {
        let writer = (rate > 0).then(|| scope.spawn(|| write(w, &queue, rate, &stop)));
        let readers: Vec<_> = (0..readers)
            .map(|me| {
                let shared = shared.clone();
                scope.spawn(move || {
                    let mut hashes = vec![LocalBlockHash(0); DEPTH];
                    let (mut ns, mut wrong) = (Vec::with_capacity(SAMPLES), 0.0);
                    let begun = Instant::now();

                    for q in (me * 1000003..).take(SAMPLES) {
                        query(w, q, DEPTH, &mut hashes);
                        let t = Instant::now();
                        let scores = shared.find_matches(&hashes, false);
                        ns.push((t.elapsed().as_nanos() as f64 - clock).max(0.0));

                        let best = scores.scores.values().max().copied().unwrap_or(0);
                        if !(512..=DEPTH).contains(&(best as usize)) {
                            wrong += 1.0;
                        }

                        if begun.elapsed() > LONG {
                            break;
                        }
                    }

                    (ns, wrong)
                })
            })
            .collect();

        let (mut ns, mut wrong) = (Vec::new(), 0.0);

        for reader in readers {
            let (v, n) = reader.join().unwrap();
            ns.extend(v);
            wrong += n;
        }

        stop.store(true, Ordering::Relaxed);
        (ns, wrong, writer.map(|writer| writer.join().unwrap()))
    });

    say(who, &format!("{name}: find p50"), "ns", median(&mut ns));
    say(who, &format!("{name}: find p99"), "ns", percentile(&mut ns, 99));

    if let Some(written) = written {
        say(who, &format!("{name}: in fact"), "k blocks/s", written);
        say(who, &format!("{name}: wrong"), "of 1000", wrong * 1000.0 / ns.len() as f64);
    } else {
        assert_eq!(wrong, 0.0, "{who}: find beside nobody");
    }
}

// k blocks/s
fn write(w: &Workload, queue: &flume::Sender<WorkerTask>, rate: u64, stop: &AtomicBool) -> f64 {
    let begun = Instant::now();
    let mut written = 0;

    for i in 0.. {
        let s = (mix(i) % w.n as u64) as usize;

        for d in (512..DEPTH).step_by(64).rev() {
            let event = remove(w, s % WORKERS, s, d + 64, 64);
            queue.send(WorkerTask::Event(event)).unwrap();
        }

        for d in (512..DEPTH).step_by(64) {
            let event = store(w, s % WORKERS, s, d, 64);
            queue.send(WorkerTask::Event(event)).unwrap();
        }

        let (answer, answered) = oneshot::channel();
        queue.send(WorkerTask::Flush(answer)).unwrap();
        answered.blocking_recv().unwrap();
        written += 1024;

        if stop.load(Ordering::Relaxed) {
            break;
        }

        let due = Duration::from_nanos(written * 1000 / rate * 1000000);
        let ahead = due.saturating_sub(begun.elapsed());

        if ahead > Duration::from_micros(50) {
            std::thread::sleep(ahead.min(Duration::from_millis(500)));
        }
    }

    written as f64 / begun.elapsed().as_secs_f64() / 1000.0
}
