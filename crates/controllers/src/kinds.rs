//! The kinds there are: for each of them one watch, one store and one queue.

use std::sync::Arc;

use api::cluster_api::{Cluster, IPAddress, IPAddressClaim, InClusterIPPool, Machine};
use api::infrastructure::v1beta1::{ProxmoxCluster, ProxmoxMachine, ProxmoxMachineTemplate};
use api::vm::{
    Container, Provider, VMBackup, VMClass, VMClone, VMImage, VMMigration, VMPlacementPolicy,
    VMRestore, VMSet, VMSnapshot, VMSnapshotSchedule, VirtualMachine,
};
use fleet::Owner;
use futures::{future::BoxFuture, stream::FuturesUnordered};
use kube::{Client, Resource as _, runtime::reflector::ObjectRef};

use crate::{
    context::{Context, owned_by},
    events::Events,
    hub::{Queue, Requests, SpecChanges, Watch, in_namespace},
    known::{Known, is_gone},
};

macro_rules! kinds {
    ($($field:ident: $kind:ty),* $(,)?) => {
        /// The watch of each kind.
        pub(crate) struct Watches {
            $(pub(crate) $field: Watch<$kind>,)*
        }

        /// What the watches know.
        pub(crate) struct Stores {
            $(pub(crate) $field: Known<$kind>,)*
        }

        /// Where requests to look at objects are put.
        #[derive(Clone)]
        pub(crate) struct Queues {
            $(pub(crate) $field: Queue<$kind>,)*
        }

        /// The other ends of the queues.
        pub(crate) struct AllRequests {
            $(pub(crate) $field: Requests<$kind>,)*
        }

        impl Watches {
            pub(crate) fn new() -> Self {
                Self { $($field: Watch::new(),)* }
            }

            pub(crate) fn stores(&self) -> Stores {
                Stores { $($field: self.$field.known(),)* }
            }

            /// Every object is looked at when someone changes it.
            pub(crate) fn requeue_own(&mut self, queues: &Queues) {
                $({
                    let (queue, changes) = (queues.$field.clone(), SpecChanges::new());
                    self.$field.subscribe(move |object| {
                        if changes.is_new(object) {
                            queue.push_object(object);
                        }
                    });
                })*
            }

            /// Of what is gone nothing is remembered.
            pub(crate) fn forget_gone(&mut self, context: &Arc<Context>) {
                $({
                    let context = context.clone();
                    self.$field.subscribe(move |object| {
                        if is_gone(object) {
                            context.forget(object);
                        }
                    });
                })*
            }

            /// Watches one namespace, or all. Of groups that are not watched nothing is there.
            pub(crate) fn run(
                self, client: &Client, namespace: Option<&str>, watched: impl Fn(&str) -> bool,
                events: &Arc<Events>, into: &FuturesUnordered<BoxFuture<'static, ()>>,
            ) {
                $(
                    if watched(&<$kind>::group(&())) {
                        into.push(self.$field.run(in_namespace(client, namespace), events.clone()));
                    } else {
                        self.$field.pass_over();
                    }
                )*
            }
        }

        impl Stores {
            /// Waits until everything there is has been seen once.
            pub(crate) async fn ready(&self) {
                $(self.$field.ready().await;)*
            }
        }

        impl Queues {
            pub(crate) fn new() -> (Self, AllRequests) {
                $(let $field = Queue::<$kind>::new();)*
                (Self { $($field: $field.0,)* }, AllRequests { $($field: $field.1,)* })
            }

            /// Asks for a look at the object behind an owner key.
            pub(crate) fn wake(&self, owner: &Owner) {
                let Some((kind, namespace, name)) = owned_by(owner) else { return };
                $(
                    if kind == <$kind>::kind(&()) {
                        self.$field.push(ObjectRef::new(name).within(namespace));
                    }
                )*
            }
        }
    };
}

kinds! {
    addresses: IPAddress,
    backups: VMBackup,
    capi_clusters: Cluster,
    capi_machines: Machine,
    claims: IPAddressClaim,
    classes: VMClass,
    clones: VMClone,
    containers: Container,
    images: VMImage,
    machines: VirtualMachine,
    migrations: VMMigration,
    policies: VMPlacementPolicy,
    pools: InClusterIPPool,
    providers: Provider,
    proxmox_clusters: ProxmoxCluster,
    proxmox_machines: ProxmoxMachine,
    proxmox_templates: ProxmoxMachineTemplate,
    restores: VMRestore,
    schedules: VMSnapshotSchedule,
    sets: VMSet,
    snapshots: VMSnapshot,
}
