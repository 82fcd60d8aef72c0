//! What the user's own services need to know of a cluster, as text in their own languages.

pub mod zone;
