//! How streams advance: operations are submitted, wait for their turn, run, and are over.
//!
//! Whatever takes no time happens under the lock, at once when its stream is idle; the rest goes to a worker.

use std::time::Instant;

use crate::call;
use crate::config;
use crate::cuda::cudaError;
use crate::graph::Action;
use crate::memory::allocation::Kind;
use crate::order::{Epoch, Timeline};
use crate::race::{self, Access, Name, Operation, Race};
use crate::sim::Sim;
use crate::stream::{self, Item, Op, Stream, StreamId, Worker};
use crate::work::Work;
use crate::workers::{self, Task};

impl Sim {
    /// A new stream.
    pub fn add_stream(&mut self, device: usize, kind: stream::Kind, flags: u32, priority: i32) -> StreamId {
        let (host, resume) = (&self.host, &self.resume);
        self.streams.insert_with(|id| {
            let at = Epoch { slot: id.slot(), count: resume.get(id.slot()).copied().unwrap_or(0) };
            Stream {
                device,
                kind,
                flags,
                priority,
                queue: Default::default(),
                worker: Worker::Nothing,
                rested: false,
                submitted: Timeline::new(at, host),
                executed: Timeline::new(at, host),
                finished: at.count,
                waiters: Vec::new(),
                awaited: 0,
                destroyed: false,
                capture: None,
            }
        })
    }

    /// The program gives a stream up: it goes when its work is done.
    pub fn destroy_stream(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.destroyed = true;
            if let Some(capture) = stream.capture {
                self.invalidate(capture);
            }
            self.remove_if_over(id);
        }
    }

    fn remove_if_over(&mut self, id: StreamId) {
        if self.streams.get(id).is_some_and(|stream| stream.destroyed && stream.is_idle() && stream.awaited == 0) {
            let stream = self.streams.remove(id).expect("looked up above");
            if self.resume.len() <= id.slot() {
                self.resume.resize(id.slot() + 1, 0);
            }
            self.resume[id.slot()] = stream.finished;
            let stamp = stream.executed.stamp();
            self.devices[stream.device].departed.join(&stamp);
            let legacy = self.devices[stream.device].legacy;
            if let Some(legacy) = self.streams.get_mut(legacy).filter(|_| stream.is_blocking()) {
                legacy.submitted.join(&stamp);
                legacy.executed.join(&stamp);
            }
        }
    }

    /// Puts an operation at the end of a stream, or of its capture. Returns its count in the stream.
    pub fn submit(&mut self, id: StreamId, name: impl Into<Name>, accesses: Vec<Access>, op: Op) -> u64 {
        if let Some(capture) = self.capture_of(id) {
            let name = name.into();
            let action = match op {
                Op::Work(work) => Action::Work { name, accesses, work },
                Op::Until(condition) => Action::Until { name, condition },
                _ => Action::Nothing,
            };
            self.capture(capture, id, action);
            return 0;
        }
        let after = self.implicit_order(id);
        let host = self.host.clone();
        let stream = self.streams.get_mut(id).expect("the caller looked the stream up");
        let count = stream.submitted.tick().count;
        stream.queue.push_back(Item { name: name.into(), host, after, accesses, op });
        self.advance(id);
        count
    }

    /// What the legacy stream and the blocking streams of one device wait for without being told.
    fn implicit_order(&mut self, id: StreamId) -> Vec<(StreamId, u64)> {
        let stream = self.streams.get(id).expect("the caller looked the stream up");
        let device = stream.device;
        let others: Vec<StreamId> = if stream.kind == stream::Kind::Legacy {
            let blocking = |other: &Stream| other.device == device && other.is_blocking();
            self.streams.iter().filter(|(other, stream)| *other != id && blocking(stream)).map(|(id, _)| id).collect()
        } else if stream.is_blocking() {
            vec![self.devices[device].legacy]
        } else {
            return Vec::new();
        };
        let mut after = Vec::new();
        for other_id in others {
            let other = self.streams.get_mut(other_id).expect("listed above");
            let (last, stamp) = (other.submitted.at(), other.submitted.stamp());
            let stream = self.streams.get_mut(id).expect("as above");
            stream.submitted.join(&stamp);
            if !stream.executed.covers(last) {
                after.push((other_id, last.count));
                self.streams.get_mut(other_id).expect("as above").awaited += 1;
            }
        }
        after
    }

    /// Lets a stream, and whichever it wakes, go as far as they can.
    fn advance(&mut self, id: StreamId) {
        self.wake.push(id);
        while let Some(id) = self.wake.pop() {
            while self.step(id) {}
        }
    }

    /// Starts a stream's next operation if it is ready. Whether there may be more to do.
    fn step(&mut self, id: StreamId) -> bool {
        let Some(stream) = self.streams.get(id) else { return false };
        if stream.worker != Worker::Nothing || stream.queue.is_empty() || self.is_held_up(id) || self.pauses(id) {
            return false;
        }
        let stream = self.streams.get_mut(id).expect("looked up above");
        let item = stream.queue.pop_front().expect("not empty");
        stream.rested = false;
        stream.executed.join_host(&item.host);
        for (other, _) in item.after {
            let other_stream = self.streams.get_mut(other).expect("awaited streams stay");
            let stamp = other_stream.executed.stamp();
            other_stream.awaited -= 1;
            self.remove_if_over(other);
            self.streams.get_mut(id).expect("as above").executed.join(&stamp);
        }
        self.join_of(id, &item.op);
        let executed = &mut self.streams.get_mut(id).expect("as above").executed;
        let epoch = executed.tick();
        let now = Operation { name: item.name, stream: Some(id), epoch };
        let may_run = self.check(id, &now, &item.accesses);
        if let Op::Work(work) = item.op {
            if may_run {
                return self.start(id, work);
            }
        } else {
            self.happen(id, now, item.op);
        }
        self.finish(id);
        true
    }

    /// Whether the next operation has to wait; then something will wake the stream.
    fn is_held_up(&mut self, id: StreamId) -> bool {
        let item = self.streams.get(id).and_then(|stream| stream.queue.front()).expect("looked up by the caller");
        let behind = |(other, count): &&(StreamId, u64)| self.streams.get(*other).is_some_and(|s| s.finished < *count);
        if let Some(&(other, _)) = item.after.iter().find(behind) {
            self.streams.get_mut(other).expect("found above").waiters.push(id);
            return true;
        }
        match &item.op {
            Op::Await(marker) if !marker.is_done() => {
                marker.wake(id);
                true
            }
            Op::Until(condition) if !condition.holds() => {
                self.outside.push(id);
                if !std::mem::replace(&mut self.watching, true) {
                    workers::watch();
                }
                true
            }
            _ => false,
        }
    }

    /// Whether the stream takes its random delay now.
    fn pauses(&mut self, id: StreamId) -> bool {
        let stream = self.streams.get_mut(id).expect("looked up by the caller");
        if self.config.delay.is_zero() || stream.rested {
            return false;
        }
        stream.worker = Worker::Pause;
        let pause = self.config.delay.mul_f64(self.delays.fraction());
        workers::run(Task { stream: id, work: Work::Pause(pause) });
        true
    }

    /// The order that an operation brings into its stream.
    fn join_of(&mut self, id: StreamId, op: &Op) {
        let stamps = match op {
            Op::Await(marker) => marker.stamp().into_iter().collect(),
            Op::Alloc(_, after) => after.clone(),
            Op::Until(_) => {
                // Another process, or the host, has made it come about, and may have known all that has happened.
                self.streams.iter().map(|(_, stream)| stream.executed.stamp()).collect()
            }
            _ => Vec::new(),
        };
        let stream = self.streams.get_mut(id).expect("looked up by the caller");
        if matches!(op, Op::Until(_)) {
            stream.executed.join_host(&self.host);
        }
        for stamp in stamps {
            stream.executed.join(&stamp);
        }
    }

    /// Looks for races. Whether the operation may still be run.
    fn check(&mut self, id: StreamId, now: &Operation, accesses: &[Access]) -> bool {
        if self.races.mode == race::Mode::Off {
            return true;
        }
        let order = &self.streams.get(id).expect("looked up by the caller").executed;
        let races: Vec<_> = accesses.iter().filter_map(|access| access.track.used(access, order, now)).collect();
        let none = races.is_empty();
        for race in races {
            self.found(&race);
        }
        none || self.races.mode == race::Mode::Count
    }

    /// Deals with a race.
    pub fn found(&mut self, race: &Race) {
        if self.races.mode == race::Mode::Off {
            return;
        }
        self.races.count += 1;
        self.races.last = race.to_string();
        match self.races.mode {
            race::Mode::Count | race::Mode::Off => {}
            race::Mode::Error => {
                eprintln!("cudart-sim: race: {race}");
                call::set_sticky(cudaError::cudaErrorIllegalAddress);
            }
            race::Mode::Abort => config::fatal(&format!("race: {race}")),
        }
    }

    /// Runs an operation here or on a worker. Whether it is over.
    fn start(&mut self, id: StreamId, work: Work) -> bool {
        let stream = self.streams.get_mut(id).expect("looked up by the caller");
        let stamp = stream.executed.stamp();
        match work {
            Work::Write { .. } => {
                // The host may be looking at the value.
                self.host.join(&stamp);
                work.run();
                self.finish(id);
                true
            }
            work => {
                if matches!(work, Work::Call { host: true, .. }) {
                    // A host function knows where its stream is, and may tell.
                    self.host.join(&stamp);
                }
                stream.worker = Worker::Operation;
                workers::run(Task { stream: id, work });
                false
            }
        }
    }

    /// An operation that takes no time.
    fn happen(&mut self, id: StreamId, now: Operation, op: Op) {
        let order = &self.streams.get(id).expect("looked up by the caller").executed;
        match op {
            Op::Alloc(allocation, _) => allocation.track.born(now),
            Op::Mark(marker) => self.wake.extend(marker.reach(order.stamp(), Some(Instant::now()))),
            Op::Post(event, number) => event.post(number),
            Op::Free(free) => {
                let race = free.allocation.track.freed(order, now);
                self.wake.extend(free.done.reach(order.stamp(), None));
                if let Some(race) = race {
                    self.found(&race);
                }
                if free.allocation.kind == Kind::Plain {
                    self.free_plain(&free.allocation);
                }
            }
            Op::Await(_) | Op::Until(_) | Op::Work(_) | Op::Nothing => {}
        }
    }

    /// An operation is over.
    fn finish(&mut self, id: StreamId) {
        let stream = self.streams.get_mut(id).expect("it has work");
        stream.finished = stream.executed.at().count;
        self.wake.append(&mut stream.waiters);
        self.remove_if_over(id);
        self.tell_waiting();
    }

    /// A worker has done what it was given for a stream.
    pub fn finished(&mut self, id: StreamId) {
        let stream = self.streams.get_mut(id).expect("it has work");
        match std::mem::replace(&mut stream.worker, Worker::Nothing) {
            Worker::Pause => stream.rested = true,
            _ => self.finish(id),
        }
        self.advance(id);
    }

    /// Looks at what streams wait for outside of their order. Whether one went on; none when none waits any more.
    pub fn look_outside(&mut self) -> Option<bool> {
        let waiting = std::mem::take(&mut self.outside);
        let before = waiting.len();
        for id in waiting {
            self.advance(id);
        }
        if self.outside.is_empty() {
            self.watching = false;
            return None;
        }
        Some(self.outside.len() < before)
    }
}
