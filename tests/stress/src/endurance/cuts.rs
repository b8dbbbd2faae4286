// SPDX-License-Identifier: GPL-2.0-only

//! Cuts the link, and knows when the cuts happen, how long they last, and how they may affect a
//! connection.

use std::sync::{Mutex, MutexGuard};

use fastrand::Rng;

use guest::prelude::*;

/// The host at which the cable is pulled. That host's device loses the carrier; the other host only
/// notices that no frames arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The cable is pulled at the client.
    Near,
    /// The cable is pulled at the server.
    Far,
    /// The cable is pulled at both hosts.
    Both,
}

/// A link that can be cut.
pub trait Link {
    /// Cuts the link at `end`.
    ///
    /// # Errors
    /// If it cannot be cut.
    fn cut(&self, end: End) -> Result<()>;

    /// Restores the link.
    ///
    /// # Errors
    /// If it cannot be restored.
    fn restore(&self) -> Result<()>;
}

/// A cut of the link, with the time before it.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// How long the link works before the cut.
    after: Duration,
    lasts: Duration,
    end: End,
}

/// The shortest and the longest duration of a long cut, in milliseconds. A connection that receives
/// nothing for 15 s ends, so a cut of this length ends all connections with data to send.
const LONG: [u64; 2] = [16_000, 30_000];

/// The shortest and the longest duration of a short cut, in milliseconds. No connection may break
/// because of a short cut: between cuts the link works for at least 3 s, and a packet is
/// retransmitted every 2 s or sooner.
const SHORT: [u64; 2] = [20, 3_000];

/// The shortest and the longest time for which the link works between cuts, in milliseconds.
const WHOLE: [u64; 2] = [3_000, 20_000];

/// One in this number of cuts is long.
const RARE: u8 = 8;

fn between(rng: &mut Rng, [least, most]: [u64; 2]) -> Duration {
    Duration::from_millis(rng.u64(least..=most))
}

fn any_end(rng: &mut Rng) -> End {
    [End::Near, End::Far, End::Both][rng.usize(..3)]
}

/// Returns an endless sequence of random cuts.
pub fn at_random(seed: u64) -> impl Iterator<Item = Cut> {
    let mut rng = Rng::with_seed(seed);
    std::iter::repeat_with(move || Cut {
        after: between(&mut rng, WHOLE),
        lasts: match rng.u8(..RARE) {
            0 => between(&mut rng, LONG),
            _ => between(&mut rng, SHORT),
        },
        end: any_end(&mut rng),
    })
}

/// Returns four short cuts in quick succession, and a long one.
pub fn rehearsal(seed: u64) -> impl Iterator<Item = Cut> {
    let mut rng = Rng::with_seed(seed);
    let lengths = [[20, 500]; 4].into_iter().chain([[LONG[0]; 2]]);
    lengths.map(move |lasts| Cut {
        after: between(&mut rng, [500, 1_000]),
        lasts: between(&mut rng, lasts),
        end: any_end(&mut rng),
    })
}

/// The history of the link's cuts.
#[derive(Debug, Default)]
pub struct Weather(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    cuts: u64,
    /// Whether the present cut is a long one; `None` while the link works.
    now: Option<bool>,
    /// Two times: when the most recent cut of any length ended, and when the most recent long cut
    /// ended.
    ended: [Option<Instant>; 2],
}

/// For this long after a cut, an attempt to connect may still fail because of the cut. The attempt
/// sends its six SYNs within 6.2 s, and then waits for an answer for about the same time.
const REFUSES: Duration = Duration::from_secs(30);

/// For this long after a long cut, a program may still notice that a connection is broken. A
/// program that does nothing but wait notices this only when its own time limit expires.
const BREAKS: Duration = Duration::from_secs(90);

impl Weather {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("nobody panics meanwhile")
    }

    fn begin(&self, long: bool) {
        let mut state = self.state();
        state.cuts += 1;
        state.now = Some(long);
    }

    fn end(&self) {
        let mut state = self.state();
        if let Some(long) = state.now.take() {
            state.ended[0] = Some(Instant::now());
            if long {
                state.ended[1] = state.ended[0];
            }
        }
    }

    /// Returns the number of cuts so far.
    pub fn cuts(&self) -> u64 {
        self.state().cuts
    }

    /// Returns whether an attempt to connect may now fail because of a cut.
    pub fn may_refuse(&self) -> bool {
        let state = self.state();
        state.now.is_some() || is_recent(state.ended[0], REFUSES)
    }

    /// Returns whether a cut may now be the reason for a broken connection.
    pub fn may_break(&self) -> bool {
        let state = self.state();
        state.now == Some(true) || is_recent(state.ended[1], BREAKS)
    }
}

fn is_recent(moment: Option<Instant>, limit: Duration) -> bool {
    moment.is_some_and(|moment| moment.elapsed() < allow(limit))
}

enum Phase {
    Whole(Instant, Cut),
    Cut(Instant),
    Over,
}

/// Cuts a link by a schedule.
pub struct Cutter<'a> {
    link: &'a dyn Link,
    weather: &'a Weather,
    schedule: &'a mut dyn Iterator<Item = Cut>,
    phase: Phase,
}

impl<'a> Cutter<'a> {
    /// Starts the schedule now.
    pub fn new(
        link: &'a dyn Link,
        weather: &'a Weather,
        schedule: &'a mut dyn Iterator<Item = Cut>,
    ) -> Self {
        let mut cutter = Self {
            link,
            weather,
            schedule,
            phase: Phase::Over,
        };
        cutter.await_next();
        cutter
    }

    fn await_next(&mut self) {
        self.phase = match self.schedule.next() {
            Some(cut) => Phase::Whole(Instant::now() + cut.after, cut),
            None => Phase::Over,
        };
    }

    /// Cuts or restores the link if that is due. Returns the time of the next step, or `None` if
    /// the schedule has ended.
    ///
    /// # Errors
    /// If the link cannot be cut or restored.
    pub fn step(&mut self) -> Result<Option<Instant>> {
        let now = Instant::now();
        match self.phase {
            Phase::Whole(until, cut) if until <= now => {
                self.weather.begin(cut.lasts.as_millis() as u64 >= LONG[0]);
                self.link.cut(cut.end)?;
                self.phase = Phase::Cut(now + cut.lasts);
            }
            Phase::Cut(until) if until <= now => {
                self.restore()?;
                self.await_next();
            }
            Phase::Whole(..) | Phase::Cut(_) | Phase::Over => {}
        }
        Ok(match self.phase {
            Phase::Whole(until, _) | Phase::Cut(until) => Some(until),
            Phase::Over => None,
        })
    }

    /// Restores the link if it is cut.
    ///
    /// # Errors
    /// If it cannot be restored.
    pub fn restore(&mut self) -> Result<()> {
        if matches!(self.phase, Phase::Cut(_)) {
            self.link.restore()?;
            self.weather.end();
        }
        self.phase = Phase::Over;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_settles_all_cuts() {
        let first: Vec<_> = at_random(7).take(100).collect();
        let again: Vec<_> = at_random(7).take(100).collect();
        assert_eq!(format!("{first:?}"), format!("{again:?}"));
        let long = |cut: &&Cut| cut.lasts >= Duration::from_millis(LONG[0]);
        assert!((1..50).contains(&first.iter().filter(long).count()));
    }

    #[test]
    fn nothing_may_break_before_the_link_was_cut() {
        let weather = Weather::default();
        assert!(!weather.may_refuse() && !weather.may_break());
        weather.begin(false);
        assert!(weather.may_refuse() && !weather.may_break());
        weather.end();
        weather.begin(true);
        assert!(weather.may_break());
        weather.end();
        assert!(weather.may_refuse() && weather.may_break());
        assert_eq!(weather.cuts(), 2);
    }
}
