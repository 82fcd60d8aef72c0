//! The promise about objects that resemble a cluster's and are not, in listings of a server that ignores filters.

use ocpdeploy::backend::Action;
use ocpdeploy::cluster::ClusterId;

use super::{Ability, Ground, Stage, as_asked};

/// An object that resembles those of a promise's cluster and is not.
#[derive(Clone, Debug)]
pub struct Foreign {
    /// Unique, and similar to the name of a machine of the cluster.
    pub name: String,
    pub mark: Mark,
}

#[derive(Clone, Debug)]
pub enum Mark {
    /// The tag of this cluster.
    Of(String),
    /// A text with the tag of this cluster within it.
    Around(String),
    None,
}

impl Foreign {
    /// The text in the place of the tag; `tag` forms a tag from a cluster's id.
    pub fn text(&self, tag: impl Fn(&str) -> String) -> Option<String> {
        match &self.mark {
            Mark::Of(id) => Some(tag(id)),
            Mark::Around(id) => Some(format!("my-{}-copy", tag(id))),
            Mark::None => None,
        }
    }

    /// All objects that may be mistaken for a cluster's: by prefix, suffix, domain, id, case and surrounding text.
    fn of(cluster: &ClusterId) -> Vec<Self> {
        let (tag, domain) = (cluster.tag(), cluster.domain());
        let (name, rest) = tag.split_once('.').unwrap();
        let marks = [
            Mark::None,
            Mark::Around(tag.to_owned()),
            Mark::Of(format!("{name}2.{rest}")),
            Mark::Of(format!("x{name}.{rest}")),
            Mark::Of(format!("{}.{rest}", &name[..name.len() - 1])),
            Mark::Of(format!("{tag}.au")),
            Mark::Of(format!("{name}.other.test.{}", cluster.deployment())),
            Mark::Of(format!("a.{tag}")),
            Mark::Of(tag.to_uppercase()),
            // Another deployment, and no deployment.
            Mark::Of(format!("{domain}.zzzzzzzz")),
            Mark::Of(domain.to_string()),
        ];
        let foreign = |(index, mark)| Self {
            name: format!("{name}-worker-0{index}"),
            mark,
        };
        marks.into_iter().enumerate().map(foreign).collect()
    }
}

pub async fn foreign_objects_in_a_listing_are_never_changed<G: Ground>(stage: &Stage<G>) {
    let owner = stage.cluster();
    let all = Foreign::of(&owner.id);
    stage.ground.put_foreign(&all);
    let before = stage.ground.foreign();
    assert!(before.len() >= all.len(), "{before:#?}");
    let unchanged = |operation: &str| assert_eq!(stage.ground.foreign(), before, "changed by: {operation}");
    let backend = stage.backend();

    let specs = [stage.create(&owner, 0).await, stage.create(&owner, 1).await];
    unchanged("creating machines");
    let again = backend.create_machine(&specs[0]).await.unwrap();
    as_asked(&again.into_inner(), &specs[0]);
    assert_eq!(
        stage.names_of(&owner).await,
        [&specs[0], &specs[1]].map(|spec| spec.name.to_string())
    );
    if stage.ground.lacks(Ability::Holds).is_none() {
        let mut leases = Vec::new();
        for node in ["api", "master-0"] {
            let hold = stage.hold(&owner, node).await;
            backend.reserve_address(&hold).await.unwrap();
            leases.push(hold.assignment);
        }
        unchanged("holding addresses");
        assert_eq!(stage.held_by(&owner).await, leases);
        let mut other = stage.hold(&owner, "master-1").await;
        assert_eq!(backend.release_address(&other).await.unwrap(), Action::Unchanged(()));
        other.assignment = leases.remove(1);
        assert_eq!(backend.release_address(&other).await.unwrap(), Action::Done(()));
        unchanged("releasing one address");
    }
    let owned = backend.list_owned(&owner.id).await.unwrap();
    for foreign in &all {
        assert!(
            owned.iter().all(|thing| !thing.name.contains(&foreign.name)),
            "{foreign:?} in {owned:#?}"
        );
    }
    backend.delete_machine(&owner.id, &specs[1].name).await.unwrap();
    unchanged("deleting a machine");
    // With a machine and without one.
    backend.delete_remaining(&owner.id).await.unwrap();
    unchanged("releasing all beside a machine");
    assert_eq!(stage.names_of(&owner).await, [specs[0].name.as_str()]);
    backend.delete_machine(&owner.id, &specs[0].name).await.unwrap();
    backend.delete_remaining(&owner.id).await.unwrap();
    stage.owns_nothing(&owner).await;
    unchanged("releasing all");
    println!(
        "reliability: {} foreign objects among unfiltered listings",
        before.len()
    );
    println!("reliability: 0 foreign objects changed");
}
