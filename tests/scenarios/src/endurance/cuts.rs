// SPDX-License-Identifier: GPL-2.0-only

//! When the link is cut, for how long, and what that may do to a connection.

use std::sync::{Mutex, MutexGuard};

use fastrand::Rng;

use crate::prelude::*;

/// At which host the cable is pulled: its device loses its carrier, the other sees nothing but
/// silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// At the client.
    Near,
    /// At the server.
    Far,
    /// At both.
    Both,
}

/// Something that can be cut.
pub trait Link {
    /// Cuts it at `end`.
    ///
    /// # Errors
    /// When it cannot be cut.
    fn cut(&self, end: End) -> Result<()>;

    /// Makes it whole again.
    ///
    /// # Errors
    /// When it cannot be restored.
    fn restore(&self) -> Result<()>;
}

/// One cut.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// For how long the link is whole before it.
    after: Duration,
    lasts: Duration,
    end: End,
}

/// A connection that hears nothing for 15 s is over. A cut of this length ends all that have
/// something to send.
const LONG: [u64; 2] = [16_000, 30_000];

/// Cuts that no connection may break of, milliseconds. While the link is whole, for at least as
/// long as the longest of them, a packet that is sent again every 2 s gets through.
const SHORT: [u64; 2] = [20, 3_000];

/// For how long the link is whole, milliseconds.
const WHOLE: [u64; 2] = [3_000, 20_000];

/// One of so many cuts is long.
const RARE: u8 = 8;

fn between(rng: &mut Rng, [least, most]: [u64; 2]) -> Duration {
    Duration::from_millis(rng.u64(least..=most))
}

fn any_end(rng: &mut Rng) -> End {
    [End::Near, End::Far, End::Both][rng.usize(..3)]
}

/// Cuts without end.
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

/// Four short cuts soon after each other, and a long one.
pub fn rehearsal(seed: u64) -> impl Iterator<Item = Cut> {
    let mut rng = Rng::with_seed(seed);
    let lengths = [[20, 500]; 4].into_iter().chain([[LONG[0]; 2]]);
    lengths.map(move |lasts| Cut {
        after: between(&mut rng, [500, 1_000]),
        lasts: between(&mut rng, lasts),
        end: any_end(&mut rng),
    })
}

/// What has befallen the link so far.
#[derive(Debug, Default)]
pub struct Weather(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    cuts: u64,
    /// Whether it is cut now, and for long.
    now: Option<bool>,
    /// When the last cut of any length, and the last long one, ended.
    ended: [Option<Instant>; 2],
}

/// For how long after a cut an attempt to connect may still fail of it: its six packets leave
/// within 6.2 s, and it waits as long for the last answer.
const REFUSES: Duration = Duration::from_secs(30);

/// For how long after a long cut a connection may still be found to be broken: a program that only
/// waits learns of it by its own patience.
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

    /// Cuts so far.
    pub fn cuts(&self) -> u64 {
        self.state().cuts
    }

    /// Whether an attempt to connect may fail of a cut now.
    pub fn may_refuse(&self) -> bool {
        let state = self.state();
        state.now.is_some() || is_recent(state.ended[0], REFUSES)
    }

    /// Whether a connection may be found broken by a cut now.
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

/// Cuts a link as a schedule says.
pub struct Cutter<'a> {
    link: &'a dyn Link,
    weather: &'a Weather,
    schedule: &'a mut dyn Iterator<Item = Cut>,
    phase: Phase,
}

impl<'a> Cutter<'a> {
    /// One that begins now.
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

    /// Does what is due: when there is more to do, or `None` at the end of the schedule.
    ///
    /// # Errors
    /// When the link cannot be cut or restored.
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

    /// Makes the link whole, if it is not.
    ///
    /// # Errors
    /// When it cannot be restored.
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
