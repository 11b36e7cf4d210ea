//! Threads that run the same batch at the same time.

use std::ffi::{c_char, c_int, c_void, CStr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::cells::Workload;
use crate::subject::{Step, Subject};

/// A subject that was opened.
pub struct Opened {
    pub name: String,
    pub version: String,
    pub memory: String,
    table: Subject,
    shared: *mut c_void,
}

// SAFETY: what `open` gave is for all threads, and the texts of the table are static.
unsafe impl Sync for Opened {}

impl Opened {
    /// Opens it; its name when that fails.
    pub fn open(table: Subject) -> Result<Self, String> {
        let text = |text: *const c_char| {
            // SAFETY: the texts of a table are static.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        let name = text(table.name);
        // SAFETY: it may be called at any time.
        let shared = unsafe { (table.open)() };
        if shared.is_null() {
            return Err(name);
        }
        Ok(Self { name, version: text(table.version), memory: text(table.memory), table, shared })
    }

    pub fn can(&self, workload: Workload) -> bool {
        workload != Workload::Handovers || self.table.handovers.is_some()
    }

    fn start(&self) -> *mut c_void {
        // SAFETY: what is shared was opened and is not closed yet.
        unsafe { (self.table.start)(self.shared) }
    }

    /// # Safety
    /// The worker was started on this thread, of this subject.
    unsafe fn run(&self, worker: *mut c_void, batch: Batch, steps: &[Step]) -> c_int {
        let Batch { workload, bytes, count } = batch;
        // SAFETY: the caller's promise.
        unsafe {
            match (workload, self.table.handovers) {
                (Workload::Pairs, _) => (self.table.pairs)(worker, bytes, count),
                (Workload::Bursts, _) => (self.table.bursts)(worker, bytes, count),
                (Workload::Random, _) => (self.table.steps)(worker, steps.as_ptr(), steps.len(), count),
                (Workload::Handovers, Some(handovers)) => handovers(worker, bytes, count),
                (Workload::Handovers, None) => 1,
            }
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: its workers lived no longer than their crew, and this is its last use.
        unsafe { (self.table.close)(self.shared) };
    }
}

#[derive(Clone, Copy)]
pub struct Batch {
    pub workload: Workload,
    pub bytes: usize,
    pub count: usize,
}

/// What one thread says of a batch: how long it took, or that it failed.
type Answer = Option<Duration>;

/// What the threads are told: the subject's number and its batch, or to end.
type Order = Mutex<Option<(usize, Batch)>>;

pub struct Crew<'a> {
    threads: usize,
    order: &'a Order,
    barrier: &'a Barrier,
    answers: mpsc::Receiver<Answer>,
}

impl<'a> Crew<'a> {
    /// Runs `work` with a crew of so many threads, each of which has a worker of each subject.
    pub fn with<R>(threads: usize, subjects: &[&Opened], steps: &[Step], work: impl FnOnce(&Crew<'_>) -> R) -> R {
        let order = Order::default();
        let barrier = Barrier::new(threads + 1);
        let arrived = AtomicUsize::new(0);
        let (sender, answers) = mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                let sender = sender.clone();
                let (order, barrier, arrived) = (&order, &barrier, &arrived);
                scope.spawn(move || follow(threads, subjects, steps, order, barrier, arrived, &sender));
            }
            let crew = Crew { threads, order: &order, barrier: &barrier, answers };
            let answer = work(&crew);
            crew.tell(None);
            answer
        })
    }

    /// Has every thread run the batch of this subject at the same time. How long that took a thread, on average, or
    /// `None` when one failed.
    pub fn run(&self, subject: usize, batch: Batch) -> Option<Duration> {
        self.tell(Some((subject, batch)));
        // All answers are waited for, also where one says that it failed.
        let answers: Vec<Answer> = self.answers.iter().take(self.threads).collect();
        let took: Duration = answers.into_iter().sum::<Answer>()?;
        Some(took / u32::try_from(self.threads).ok()?)
    }

    fn tell(&self, order: Option<(usize, Batch)>) {
        *self.order.lock().unwrap_or_else(PoisonError::into_inner) = order;
        self.barrier.wait();
    }
}

fn follow(
    threads: usize,
    subjects: &[&Opened],
    steps: &[Step],
    order: &Order,
    barrier: &Barrier,
    arrived: &AtomicUsize,
    answers: &mpsc::Sender<Answer>,
) {
    let workers: Vec<*mut c_void> = subjects.iter().map(|subject| subject.start()).collect();
    for round in 1.. {
        barrier.wait();
        let Some((subject, batch)) = *order.lock().unwrap_or_else(PoisonError::into_inner) else { break };
        // The barrier wakes one thread after the other; the batches are to begin together.
        arrived.fetch_add(1, Ordering::AcqRel);
        while arrived.load(Ordering::Acquire) < round * threads {
            std::thread::yield_now();
        }
        let worker = workers[subject];
        let begun = Instant::now();
        // SAFETY: the worker of this number was started above, of the subject of this number.
        let failed = worker.is_null() || unsafe { subjects[subject].run(worker, batch, steps) } != 0;
        let took = begun.elapsed();
        if let (Some(settle), false) = (subjects[subject].table.settle, failed) {
            // SAFETY: as above.
            unsafe { settle(worker) };
        }
        let _ = answers.send((!failed).then_some(took));
    }
    for (subject, worker) in subjects.iter().zip(workers) {
        if !worker.is_null() {
            // SAFETY: it was started above, and this is its last use.
            unsafe { (subject.table.finish)(worker) };
        }
    }
}
