//! What a request asks for: its path and verb, and the options in its query string.

use http::Method;

use crate::status::{Result, Status};

/// A request's attributes, as authorisation and dispatch need them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Target {
    pub(crate) verb: Verb,
    /// `None` for paths outside of `/api` and `/apis`, such as `/healthz`.
    pub(crate) resource: Option<Resource>,
    pub(crate) path: String,
    /// The one name that the field selector of a collection request allows, or empty.
    pub(crate) pinned: String,
}

/// The part of a path that names objects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: String,
    pub(crate) plural: String,
    pub(crate) name: String,
    pub(crate) subresource: String,
}

/// What is done, in the words of RBAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Verb {
    #[default]
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
    /// Any other method, by its lower-case name for non-resource paths.
    Other(&'static str),
}

impl Verb {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Other(name) => name,
        }
    }
}

impl Target {
    /// Reads method, path and query.
    pub(crate) fn parse(method: &Method, path: &str, query: &Query) -> Self {
        let resource = resource(path);
        let named = resource.as_ref().is_some_and(|r| !r.name.is_empty());
        let verb = match *method {
            Method::GET | Method::HEAD if resource.is_none() => Verb::Get,
            Method::GET | Method::HEAD if is_old_watch(path) => Verb::Watch,
            Method::GET | Method::HEAD if named => Verb::Get,
            Method::GET | Method::HEAD if query.flag("watch") => Verb::Watch,
            Method::GET | Method::HEAD => Verb::List,
            Method::POST if resource.is_none() => Verb::Other("post"),
            Method::POST => Verb::Create,
            Method::PUT if resource.is_none() => Verb::Other("put"),
            Method::PUT => Verb::Update,
            Method::PATCH => Verb::Patch,
            Method::DELETE if named || resource.is_none() => Verb::Delete,
            Method::DELETE => Verb::DeleteCollection,
            Method::OPTIONS => Verb::Other("options"),
            _ => Verb::Other("unknown"),
        };
        Self {
            verb,
            resource,
            path: path.to_owned(),
            pinned: String::new(),
        }
    }

    /// Notes the name in `fieldSelector=metadata.name=x`: rights to one object cover listing just that.
    pub(crate) fn pin_name(&mut self, query: &Query) {
        let pinned = query
            .text("fieldSelector")
            .split(',')
            .find_map(|term| term.strip_prefix("metadata.name="));
        if let Some(name) = pinned {
            name.trim_start_matches('=').clone_into(&mut self.pinned);
        }
    }
}

/// `/api/v1/watch/...`, the form of watches from before the `watch` parameter.
fn is_old_watch(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(
        parts.as_slice(),
        ["", "api", _, "watch", ..] | ["", "apis", _, _, "watch", ..]
    )
}

fn resource(path: &str) -> Option<Resource> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let rest = match rest {
        ["watch", rest @ ..] if !rest.is_empty() => rest,
        rest => rest,
    };
    let (namespace, rest) = match rest {
        // `namespaces/x` is an object, `namespaces/x/pods` is a place, `namespaces/x/status` is a subresource.
        ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => ("", rest),
        ["namespaces", namespace, rest @ ..] => (*namespace, rest),
        rest => ("", rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (*plural, "", String::new()),
        [plural, name] => (*plural, *name, String::new()),
        [plural, name, subresource @ ..] => (*plural, *name, subresource.join("/")),
        [] => return None,
    };
    if plural.is_empty() {
        return None;
    }
    let decode = |text: &str| percent_decode(text);
    Some(Resource {
        group: decode(group),
        version: decode(version),
        namespace: decode(namespace),
        plural: decode(plural),
        name: decode(name),
        subresource: decode(&subresource),
    })
}

/// A query string, decoded.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(query: Option<&str>) -> Self {
        let pairs = query
            .unwrap_or_default()
            .split('&')
            .filter(|p| !p.is_empty());
        Self(
            pairs
                .map(|pair| {
                    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                    let decode = |text: &str| percent_decode(&text.replace('+', " "));
                    (decode(key), decode(value))
                })
                .collect(),
        )
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(k, _)| k == key)
            .map(|(_, v)| v.as_str())
    }

    pub(crate) fn text(&self, key: &str) -> &str {
        self.get(key).unwrap_or_default()
    }

    pub(crate) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(k, _)| k == key)
            .map(|(_, v)| v.as_str())
    }

    /// Go's notion of a true parameter: present, and not one of the spellings of false.
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.get(key)
            .is_some_and(|v| !matches!(v.to_ascii_lowercase().as_str(), "0" | "false"))
    }

    pub(crate) fn number<T: std::str::FromStr>(&self, key: &str) -> Result<Option<T>> {
        match self.get(key) {
            None | Some("") => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| {
                Status::bad_request(format!(
                    "strconv.ParseInt: parsing \"{text}\": invalid syntax"
                ))
            }),
        }
    }
}

fn percent_decode(text: &str) -> String {
    if !text.contains('%') {
        return text.to_owned();
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = |offset: usize| {
            let digit = bytes.get(at + offset)?;
            char::from(*digit).to_digit(16)
        };
        if bytes[at] == b'%'
            && let (Some(high), Some(low)) = (hex(1), hex(2))
        {
            out.push(u8::try_from(high * 16 + low).unwrap_or_default());
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(method: &Method, uri: &str) -> Target {
        let (path, query) = uri
            .split_once('?')
            .map_or((uri, None), |(p, q)| (p, Some(q)));
        Target::parse(method, path, &Query::parse(query))
    }

    #[test]
    fn paths_and_methods_become_verbs_on_resources() {
        for (method, uri, verb, place) in [
            (
                Method::GET,
                "/api/v1/namespaces",
                "list",
                "|v1||namespaces||",
            ),
            (
                Method::GET,
                "/api/v1/namespaces/x",
                "get",
                "|v1||namespaces|x|",
            ),
            (
                Method::PUT,
                "/api/v1/namespaces/x/finalize",
                "update",
                "|v1||namespaces|x|finalize",
            ),
            (
                Method::GET,
                "/api/v1/namespaces/x/pods?watch=true",
                "watch",
                "|v1|x|pods||",
            ),
            (
                Method::GET,
                "/api/v1/watch/namespaces/x/pods",
                "watch",
                "|v1|x|pods||",
            ),
            (
                Method::POST,
                "/api/v1/namespaces/x/pods/p/eviction",
                "create",
                "|v1|x|pods|p|eviction",
            ),
            (
                Method::DELETE,
                "/apis/apps/v1/namespaces/x/deployments",
                "deletecollection",
                "apps|v1|x|deployments||",
            ),
            (
                Method::PATCH,
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
                "patch",
                "rbac.authorization.k8s.io|v1||clusterroles|system:node|",
            ),
        ] {
            let target = target(&method, uri);
            let r = target.resource.unwrap();
            assert_eq!(target.verb.as_str(), verb, "{uri}");
            assert_eq!(
                [
                    r.group,
                    r.version,
                    r.namespace,
                    r.plural,
                    r.name,
                    r.subresource
                ]
                .join("|"),
                place,
                "{uri}"
            );
        }
        assert_eq!(target(&Method::GET, "/healthz").resource, None);
        assert_eq!(target(&Method::GET, "/apis/apps/v1").resource, None);
    }

    #[test]
    fn query_strings_are_decoded() {
        let query = Query::parse(Some("labelSelector=a%3Db%2Cc&watch=0&limit=5&x=a+b"));
        assert_eq!(query.text("labelSelector"), "a=b,c");
        assert!(!query.flag("watch"));
        assert_eq!(query.number::<u64>("limit").unwrap(), Some(5));
        assert_eq!(query.text("x"), "a b");
    }
}
