//! The result of a call that may be repeated.

/// Whether a call changed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<T> {
    Done(T),
    Unchanged(T),
}

impl<T> Action<T> {
    pub fn into_inner(self) -> T {
        match self {
            Action::Done(value) | Action::Unchanged(value) => value,
        }
    }
}
