//! Platforms with injected faults, or without probes of guests.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use ocpdeploy::backend::platforms::{Fault, Hook, Operation, Platforms};
use ocpdeploy::backend::{Backend, BackendError, BackendErrorKind, Capabilities};

/// How a call fails.
#[derive(Clone, Copy, Debug)]
pub struct Failing {
    pub name: &'static str,
    pub kind: BackendErrorKind,
    /// The operation was done; only the answer is lost.
    pub done: bool,
    /// The pause that the platform requests.
    pub pause: Option<Duration>,
}

/// Which calls fail.
#[derive(Clone, Copy, Debug)]
pub enum When {
    /// The one with this number among all calls, from 0.
    Once(usize),
    /// From that one on, each of the same verb.
    Ever(usize),
    /// Each one, the first, third, fifth … time that it is made.
    EachFirst,
}

/// The faults among the calls of one test, which are counted.
#[derive(Default)]
pub struct Faults {
    of: Option<(Failing, When)>,
    calls: RefCell<Vec<(&'static str, String)>>,
    made: RefCell<BTreeMap<String, usize>>,
    failing: Cell<Option<&'static str>>,
    failed: Cell<usize>,
}

impl Faults {
    pub fn new(failing: Failing, when: When) -> Rc<Self> {
        Rc::new(Self {
            of: Some((failing, when)),
            ..Self::default()
        })
    }

    /// The calls that were made: verb and object, in order.
    pub fn calls(&self) -> Vec<(&'static str, String)> {
        self.calls.borrow().clone()
    }

    /// How many calls were made to fail.
    pub fn failed(&self) -> usize {
        self.failed.get()
    }

    /// The verb of the call that was made to fail first.
    pub fn failing(&self) -> Option<&'static str> {
        self.failing.get()
    }
}

impl Hook for Faults {
    fn capabilities(&self, real: Capabilities) -> Capabilities {
        Capabilities {
            poll_interval: Duration::from_millis(1),
            ..real
        }
    }

    fn fault(&self, operation: &Operation) -> Option<Fault> {
        let number = self.calls.borrow().len();
        self.calls.borrow_mut().push((operation.verb, operation.object.clone()));
        let mut made = self.made.borrow_mut();
        let made = made.entry(operation.to_string()).or_default();
        *made += 1;
        let (failing, when) = self.of?;
        let fails = match when {
            When::Once(at) => number == at,
            When::Ever(at) => number == at || self.failing.get() == Some(operation.verb),
            When::EachFirst => *made % 2 == 1,
        };
        fails.then(|| {
            self.failing.set(self.failing.get().or(Some(operation.verb)));
            self.failed.set(self.failed.get() + 1);
            Fault {
                error: BackendError::new(failing.kind, failing.name).pause(failing.pause),
                is_done: failing.done,
            }
        })
    }
}

/// Guests are not probed over the network, and machines are listed this often.
struct Far(Duration);

impl Hook for Far {
    fn capabilities(&self, real: Capabilities) -> Capabilities {
        Capabilities {
            poll_interval: self.0,
            guests_reachable: false,
            ..real
        }
    }

    fn fault(&self, _: &Operation) -> Option<Fault> {
        None
    }
}

/// A platform whose guests are not probed over the network: those of fakes have none.
pub fn no_guest_probe(backend: impl Backend + 'static, poll_interval: Duration) -> Platforms {
    Platforms::on("fake", Box::new(backend)).with_hook(Rc::new(Far(poll_interval)))
}

/// A platform alone, whose calls are made once.
pub fn alone(backend: impl Backend + 'static) -> Platforms {
    Platforms::on("the platform", Box::new(backend)).for_at_most(Duration::ZERO)
}
