//! (interface as the passes use it; the room is being built, replace this file whole)
use crate::backend::Payload;

pub fn helper_payload(_host_name: &str, _ssh_keys: &[String]) -> Result<Payload, std::io::Error> {
    Err(std::io::Error::other("not built yet"))
}
