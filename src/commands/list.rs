//! `ocpdeploy list`.

use std::time::Duration;

use anyhow::Result;
use futures::future::join_all;
use jiff::Timestamp;
use tokio::time::timeout;

use super::output::print_result;
use super::platform::connect_known;
use super::session::{Session, end, runtime};
use super::terminal;
use crate::backend::Machine;
use crate::cli::List;
use crate::report::list;
use crate::state::inventory;
use crate::state::inventory::Known;
use crate::state::journal;

/// Time limit for querying all platforms: most of the list comes from the state directory.
const PATIENCE: Duration = Duration::from_secs(3);

pub fn run(session: &Session, command: &List) -> Result<()> {
    let known = inventory::clusters(&session.home)?;
    let runtime = runtime()?;
    let looks = known.iter().map(|cluster| machines(&cluster.known));
    let machines = runtime.block_on(join_all(looks));
    end(runtime);
    let mut clusters = Vec::new();
    for (cluster, machines) in known.iter().zip(machines) {
        let dir = session.home.cluster(&cluster.known.name);
        // First the lock: a process that ends in between has written its whole journal.
        let holder = journal::holder(&dir);
        let entries = journal::read(&dir.journal())?;
        let machines = machines.as_deref();
        clusters.push(list::Entry::of(
            cluster,
            &entries,
            holder.as_ref(),
            machines,
            Timestamp::now(),
        ));
    }
    let list = list::List { clusters };
    print_result(&command.output, &list, || list.text(terminal::width()))
}

/// A cluster's machines; `None` if the platform does not answer in time.
async fn machines(known: &Known) -> Option<Vec<Machine>> {
    let look = async {
        let backend = connect_known(known).await.ok()?;
        backend.list_machines(&known.id()).await.ok()
    };
    timeout(PATIENCE, look).await.ok().flatten()
}
