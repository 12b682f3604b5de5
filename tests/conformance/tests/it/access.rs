//! Who may do what: tokens, roles, reviews.

use conformance::{Session, case};
use http::Method;
use serde_json::{Value, json};
use testbed::http::Credentials;

use crate::fixtures::cm;

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// Makes an account, gives it `rules` in the namespace, and returns its token.
async fn account(s: &Session, name: &str, rules: &Value) -> Credentials {
    let body = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
    s.post("account", &s.core("serviceaccounts"), &body).await;
    s.post(
        "role",
        &s.group(RBAC, "roles"),
        &json!({"apiVersion": RBAC, "kind": "Role", "metadata": {"name": name}, "rules": rules}),
    )
    .await;
    s.post("binding", &s.group(RBAC, "rolebindings"), &binding(s, name))
        .await;
    let body =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
            .to_string();
    let path = s.core(&format!("serviceaccounts/{name}/token"));
    let answer = s
        .raw(
            Method::POST,
            &path,
            &[("content-type", "application/json")],
            &body,
        )
        .await;
    let answer: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let credentials = Credentials::Token(
        answer["status"]["token"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
    );
    // Rules take effect a moment after they are written.
    let them = s.with(&credentials);
    for _ in 0..250 {
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": s.ns()}}).to_string();
        let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
        let answer = them
            .raw(
                Method::POST,
                path,
                &[("content-type", "application/json")],
                &review,
            )
            .await;
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let verbs = rules[0]["verbs"].clone();
        if body["status"]["resourceRules"]
            .as_array()
            .is_some_and(|all| all.iter().any(|r| r["verbs"] == verbs))
        {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    credentials
}

fn binding(s: &Session, name: &str) -> Value {
    json!({"apiVersion": RBAC, "kind": "RoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": s.ns()}]})
}

case!(strangers_see_little, async |s| {
    let stranger = s.with(&Credentials::Anonymous);
    for path in [
        "/api/v1/secrets",
        "/api",
        "/apis",
        "/version",
        "/healthz",
        "/livez",
        "/readyz",
        "/openapi/v2",
        "/metrics",
        "/",
    ] {
        let answer = stranger.raw(Method::GET, path, &[], "").await;
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        s.note(
            path,
            json!([
                answer.status.as_u16(),
                body["message"],
                body["reason"],
                body["details"]
            ]),
        )
        .await;
    }
    let liar = s.with(&Credentials::Token("nonsense".into()));
    liar.get("a bad token", "/api/v1/namespaces").await;
    liar.get("a bad token for what everybody sees", "/version")
        .await;
    s.join(liar).await;
});

case!(roles_allow_what_they_name, async |s| {
    s.post("a", &s.cms(), &cm("a", &json!({}))).await;
    s.post("b", &s.cms(), &cm("b", &json!({}))).await;
    let reader = account(s, "reader", &json!([
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"], "resourceNames": ["a"]},
        {"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["get"]},
        {"apiGroups": ["apps"], "resources": ["*"], "verbs": ["watch"]}]))
    .await;
    let them = s.with(&reader);
    them.get("the named one", &s.cm("a")).await;
    them.get("another", &s.cm("b")).await;
    them.get("list", &s.cms()).await;
    them.get(
        "list of the named one",
        &format!("{}?fieldSelector=metadata.name%3Da", s.cms()),
    )
    .await;
    them.post("create", &s.cms(), &cm("c", &json!({}))).await;
    them.merge("patch", &s.cm("a"), &json!({"data": {}})).await;
    them.put("update", &s.cm("a"), &cm("a", &json!({}))).await;
    them.delete("delete", &s.cm("a")).await;
    them.delete("delete all", &s.cms()).await;
    them.get("watch", &format!("{}?watch=1&timeoutSeconds=1", s.cms()))
        .await;
    them.get("elsewhere", "/api/v1/namespaces/default/configmaps/a")
        .await;
    them.get("everywhere", "/api/v1/configmaps").await;
    them.get(
        "a subresource",
        &s.group("apps/v1", "deployments/none/scale"),
    )
    .await;
    them.get(
        "the resource itself",
        &s.group("apps/v1", "deployments/none"),
    )
    .await;
    them.get("another kind", &s.core("secrets")).await;
    them.get("a cluster-wide kind", "/api/v1/nodes").await;
    them.get("an unknown kind", &s.core("nonsenses")).await;
    them.get("discovery", "/api").await;
    them.get("a path of no resource", "/metrics").await;
    s.join(them).await;
});

case!(a_role_cannot_give_more_than_its_writer_has, async |s| {
    let writer = account(s, "writer", &json!([{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]))
    .await;
    let them = s.with(&writer);
    let role = |name: &str, rules: Value| json!({"apiVersion": RBAC, "kind": "Role", "metadata": {"name": name}, "rules": rules});
    them.post(
        "what they have",
        &s.group(RBAC, "roles"),
        &role(
            "ok",
            json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]),
        ),
    )
    .await;
    them.post(
        "more than they have",
        &s.group(RBAC, "roles"),
        &role(
            "no",
            json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]}]),
        ),
    )
    .await;
    them.merge(
        "widen",
        &s.group(RBAC, "roles/ok"),
        &json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
    )
    .await;
    let mut bind = binding(s, "writer");
    bind["metadata"]["name"] = json!("admin");
    bind["roleRef"] = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"});
    them.post("bind to everything", &s.group(RBAC, "rolebindings"), &bind)
        .await;
    s.join(them).await;
});

case!(roles_are_checked, async |s| {
    let role = |rules: Value| json!({"apiVersion": RBAC, "kind": "Role", "metadata": {"name": "x"}, "rules": rules});
    let path = format!("{}?dryRun=All", s.group(RBAC, "roles"));
    s.post(
        "no verbs",
        &path,
        &role(json!([{"apiGroups": [""], "resources": ["pods"], "verbs": []}])),
    )
    .await;
    s.post(
        "no groups",
        &path,
        &role(json!([{"resources": ["pods"], "verbs": ["get"]}])),
    )
    .await;
    s.post(
        "no resources",
        &path,
        &role(json!([{"apiGroups": [""], "verbs": ["get"]}])),
    )
    .await;
    s.post(
        "paths in a namespace",
        &path,
        &role(json!([{"nonResourceURLs": ["/x"], "verbs": ["get"]}])),
    )
    .await;
    let path = format!("{}?dryRun=All", s.group(RBAC, "rolebindings"));
    let mut bad = binding(s, "x");
    bad["roleRef"] = json!({"apiGroup": "", "kind": "Thing", "name": ""});
    s.post("bad role", &path, &bad).await;
    let mut bad = binding(s, "x");
    bad["subjects"] = json!([{"kind": "Robot", "name": "x"}, {"kind": "User", "name": ""}, {"kind": "ServiceAccount", "name": "Bad_Name"}]);
    s.post("bad subjects", &path, &bad).await;
    let good = s
        .post("binding", &s.group(RBAC, "rolebindings"), &binding(s, "y"))
        .await;
    s.note("created", json!(good.status)).await;
    s.merge(
        "another role",
        &s.group(RBAC, "rolebindings/y"),
        &json!({"roleRef": {"name": "z"}}),
    )
    .await;
});

case!(the_built_in_roles_are_there, async |s| {
    for name in [
        "cluster-admin",
        "admin",
        "edit",
        "view",
        "system:discovery",
        "system:public-info-viewer",
        "system:basic-user",
    ] {
        let answer = s
            .raw(
                Method::GET,
                &format!("/apis/{RBAC}/clusterroles/{name}"),
                &[],
                "",
            )
            .await;
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        s.note(
            name,
            json!([
                answer.status.as_u16(),
                body["metadata"]["labels"]["kubernetes.io/bootstrapping"]
            ]),
        )
        .await;
    }
    s.get(
        "everything for masters",
        &format!("/apis/{RBAC}/clusterrolebindings/cluster-admin"),
    )
    .await;
    s.get(
        "discovery for everybody known",
        &format!("/apis/{RBAC}/clusterrolebindings/system:discovery"),
    )
    .await;
});

case!(cluster_roles_can_be_put_together, async |s| {
    let path = format!("/apis/{RBAC}/clusterroles");
    let name = s.ns();
    let part = json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": format!("{name}-part"), "labels": {"into": name}},
        "rules": [{"apiGroups": ["x.test"], "resources": ["things"], "verbs": ["get"]}]});
    s.post(
        "whole",
        &path,
        &json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": name},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"into": name}}]}}),
    )
    .await;
    s.post("part", &path, &part).await;
});

case!(an_account_gets_tokens, async |s| {
    let body = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}});
    s.post("account", &s.core("serviceaccounts"), &body).await;
    let request = |spec: Value| json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let path = s.core("serviceaccounts/a/token");
    let made = s.post("token", &path, &request(json!({}))).await;
    s.note(
        "is a token",
        json!(
            made.body["status"]["token"]
                .as_str()
                .is_some_and(|t| t.split('.').count() == 3)
        ),
    )
    .await;
    s.post(
        "for a time",
        &path,
        &request(json!({"expirationSeconds": 600})),
    )
    .await;
    s.post(
        "for too short a time",
        &path,
        &request(json!({"expirationSeconds": 60})),
    )
    .await;
    s.post(
        "for too long a time",
        &path,
        &request(json!({"expirationSeconds": 5_000_000_000_i64})),
    )
    .await;
    s.post(
        "for an audience",
        &path,
        &request(json!({"audiences": ["somebody"]})),
    )
    .await;
    s.post(
        "of nobody",
        &s.core("serviceaccounts/none/token"),
        &request(json!({})),
    )
    .await;
    s.post(
        "bound to nothing",
        &path,
        &request(json!({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "none"}})),
    )
    .await;
    let token = made.body["status"]["token"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let them = s.with(&Credentials::Token(token.clone()));
    them.post(
        "who am I",
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        &json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}),
    )
    .await;
    s.join(them).await;
    let review = |token: &str| json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    s.post(
        "review",
        "/apis/authentication.k8s.io/v1/tokenreviews",
        &review(&token),
    )
    .await;
    s.post(
        "review nonsense",
        "/apis/authentication.k8s.io/v1/tokenreviews",
        &review("nonsense"),
    )
    .await;
    s.post("review for another audience", "/apis/authentication.k8s.io/v1/tokenreviews",
        &json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token, "audiences": ["somebody"]}}))
        .await;
    s.delete("delete the account", &s.core("serviceaccounts/a"))
        .await;
    let late = s.with(&Credentials::Token(token));
    let mut status = 0;
    for _ in 0..1500 {
        status = late.raw(Method::GET, "/api", &[], "").await.status.as_u16();
        if status == 401 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    s.note("the token dies with its account", json!(status))
        .await;
});

case!(reviews_say_who_may, async |s| {
    let reader = account(
        s,
        "reader",
        &json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]),
    )
    .await;
    let them = s.with(&reader);
    let own = |attributes: Value| json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": attributes}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    them.post(
        "yes",
        path,
        &own(json!({"verb": "get", "resource": "configmaps", "namespace": s.ns()})),
    )
    .await;
    them.post(
        "no",
        path,
        &own(json!({"verb": "delete", "resource": "configmaps", "namespace": s.ns()})),
    )
    .await;
    them.post(
        "elsewhere",
        path,
        &own(json!({"verb": "get", "resource": "configmaps", "namespace": "default"})),
    )
    .await;
    them.post("a path", path, &json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"nonResourceAttributes": {"verb": "get", "path": "/openapi/v2"}}}))
        .await;
    them.post("nothing", path, &json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {}})).await;
    s.join(them).await;
    s.post(
        "the admin",
        path,
        &own(json!({"verb": "*", "resource": "*", "group": "*"})),
    )
    .await;
    let user = format!("system:serviceaccount:{}:reader", s.ns());
    let about = |verb: &str, user: &str| {
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": {"verb": verb, "resource": "configmaps", "namespace": s.ns()}}})
    };
    s.post(
        "about another: yes",
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        &about("get", &user),
    )
    .await;
    s.post(
        "about another: no",
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        &about("list", &user),
    )
    .await;
    s.post(
        "about nobody",
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        &about("get", ""),
    )
    .await;
    s.post(
        "in the namespace",
        &s.group("authorization.k8s.io/v1", "localsubjectaccessreviews"),
        &{
            let mut body = about("get", &user);
            body["kind"] = json!("LocalSubjectAccessReview");
            body["metadata"] = json!({"namespace": s.ns()});
            body
        },
    )
    .await;
    s.get("reviews cannot be read", path).await;
});

case!(others_can_be_impersonated, async |s| {
    let json_type = ("content-type", "application/json");
    let body =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string();
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    s.send(
        "as a user",
        Method::POST,
        path,
        &[
            json_type,
            ("impersonate-user", "jane"),
            ("impersonate-group", "dev"),
        ],
        &body,
    )
    .await;
    s.send(
        "a group alone",
        Method::POST,
        path,
        &[json_type, ("impersonate-group", "dev")],
        &body,
    )
    .await;
    s.send(
        "jane may not",
        Method::GET,
        &s.cms(),
        &[("impersonate-user", "jane")],
        "",
    )
    .await;
    let nobody = account(
        s,
        "nobody",
        &json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]),
    )
    .await;
    let them = s.with(&nobody);
    them.send(
        "may not impersonate",
        Method::GET,
        &s.cms(),
        &[("impersonate-user", "jane")],
        "",
    )
    .await;
    s.join(them).await;
});

case!(reviews_take_the_options_of_a_creation, async |s| {
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}},
    });
    s.post("dry run", &format!("{path}?dryRun=All"), &review)
        .await;
    s.post("unknown dry run", &format!("{path}?dryRun=Some"), &review)
        .await;
    let mut odd = review.clone();
    odd["spec"]["nonsense"] = json!(1);
    for mode in ["Strict", "Warn", "Ignore"] {
        s.post(mode, &format!("{path}?fieldValidation={mode}"), &odd)
            .await;
    }
    s.post("manager", &format!("{path}?fieldManager=somebody"), &review)
        .await;
});
