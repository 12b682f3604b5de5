//! Finds the route of a request.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::Method;

use super::{Route, names};
use crate::params::Params;

/// All routes as a tree over the parts of their paths.
#[derive(Debug, Default)]
pub(crate) struct Table {
    root: Branch,
}

#[derive(Debug, Default)]
struct Branch {
    literal: BTreeMap<&'static str, Branch>,
    any: Option<Box<Branch>>,
    rest: BTreeMap<String, Arc<Route>>,
    here: BTreeMap<String, Arc<Route>>,
}

impl Table {
    /// A table of `routes`; a later route replaces an earlier one of the same method and path.
    pub(crate) fn new(routes: impl IntoIterator<Item = Route>) -> Self {
        let mut table = Self::default();
        for route in routes {
            table.add(route);
        }
        table
    }

    fn add(&mut self, route: Route) {
        let mut branch = &mut self.root;
        let mut to_rest = false;
        for part in parts(route.path) {
            if part.ends_with("*}") {
                to_rest = true;
            } else if part.starts_with('{') {
                branch = branch.any.get_or_insert_default();
            } else {
                branch = branch.literal.entry(part).or_default();
            }
        }
        let methods = if to_rest {
            &mut branch.rest
        } else {
            &mut branch.here
        };
        methods.insert(route.method.to_string(), Arc::new(route));
    }

    /// The route of `method` and `path` (already percent-decoded), with its path parameters.
    pub(crate) fn find(&self, method: &Method, path: &str) -> Option<(Arc<Route>, Params)> {
        let parts: Vec<_> = parts(path).collect();
        let mut values = Vec::new();
        let route = self.root.find(method.as_str(), &parts, &mut values)?;
        let mut params = Params::new();
        for (name, value) in names(route.path).zip(values) {
            params.set(name, value);
        }
        Some((Arc::clone(route), params))
    }

    /// The names of all routes.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut all = Vec::new();
        self.root.names(&mut all);
        all.sort();
        all
    }
}

fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

impl Branch {
    fn find<'a>(
        &'a self,
        method: &str,
        parts: &[&str],
        values: &mut Vec<String>,
    ) -> Option<&'a Arc<Route>> {
        let Some((first, others)) = parts.split_first() else {
            return self.here.get(method);
        };
        if let Some(branch) = self.literal.get(*first)
            && let Some(found) = branch.find(method, others, values)
        {
            return Some(found);
        }
        if let Some(branch) = &self.any {
            values.push((*first).to_owned());
            if let Some(found) = branch.find(method, others, values) {
                return Some(found);
            }
            values.pop();
        }
        let found = self.rest.get(method)?;
        values.push(parts.join("/"));
        Some(found)
    }

    fn names(&self, all: &mut Vec<String>) {
        all.extend(
            self.here
                .values()
                .chain(self.rest.values())
                .map(|route| route.name()),
        );
        self.literal
            .values()
            .chain(self.any.as_deref())
            .for_each(|branch| branch.names(all));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Reply;
    use crate::route::{delete, get};

    fn table() -> Table {
        Table::new([
            get("/nodes/{node}/qemu/{vmid}/config", |_| Ok(Reply::null())),
            get("/nodes/{node}/storage/{storage}/content/{volume*}", |_| {
                Ok(Reply::null())
            }),
            get("/pools/{poolid*}", |_| Ok(Reply::null())),
            delete("/nodes/{node}", |_| Ok(Reply::null())),
        ])
    }

    #[test]
    fn path_parameters_are_named_by_the_pattern() {
        let (route, params) = table()
            .find(&Method::GET, "/nodes/pve1/qemu/100/config")
            .expect("declared");
        assert_eq!(route.path, "/nodes/{node}/qemu/{vmid}/config");
        assert_eq!((params.text("node"), params.text("vmid")), ("pve1", "100"));
    }

    #[test]
    fn a_volume_may_contain_slashes() {
        let (_, params) = table()
            .find(
                &Method::GET,
                "/nodes/pve1/storage/dir2/content/dir2:iso/a.iso",
            )
            .expect("declared");
        assert_eq!(params.text("volume"), "dir2:iso/a.iso");
        assert_eq!(params.text("storage"), "dir2");
    }

    #[test]
    fn another_verb_is_not_found() {
        assert!(
            table()
                .find(&Method::POST, "/nodes/pve1/qemu/100/config")
                .is_none()
        );
        assert!(table().find(&Method::GET, "/nodes/pve1").is_none());
    }
}
