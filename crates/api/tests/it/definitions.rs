//! The definitions the chart ships are the ones the types say.

use std::{fs, path::PathBuf};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps,
};

fn chart() -> PathBuf {
    [
        env!("CARGO_MANIFEST_DIR"),
        "..",
        "..",
        "charts",
        "oxmox",
        "crds",
    ]
    .iter()
    .collect()
}

/// Run with `OXMOX_UPDATE=1` to write the files anew.
#[test]
fn the_chart_carries_exactly_these_definitions() {
    let update = std::env::var_os("OXMOX_UPDATE").is_some();
    let mut names = Vec::new();
    for crd in api::installed_crds() {
        let name = format!("{}.yaml", crd.metadata.name.as_deref().unwrap());
        let text = serde_saphyr::to_string(&serde_json::to_value(&crd).unwrap()).unwrap();
        let file = chart().join(&name);
        if update {
            fs::create_dir_all(chart()).unwrap();
            fs::write(&file, &text).unwrap();
        }
        let shipped = fs::read_to_string(&file).unwrap_or_default();
        assert!(
            shipped == text,
            "{name} is out of date: run `OXMOX_UPDATE=1 cargo test -p api`"
        );
        names.push(name);
    }
    let mut shipped: Vec<String> = fs::read_dir(chart())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    shipped.sort();
    assert_eq!(shipped, names);
}

fn schema(crd: &CustomResourceDefinition) -> &JSONSchemaProps {
    crd.spec.versions[0]
        .schema
        .as_ref()
        .unwrap()
        .open_api_v3_schema
        .as_ref()
        .unwrap()
}

fn walk<'a>(path: &str, at: &'a JSONSchemaProps, see: &mut dyn FnMut(&str, &'a JSONSchemaProps)) {
    see(path, at);
    for (name, child) in at.properties.iter().flatten() {
        walk(&format!("{path}.{name}"), child, see);
    }
    if let Some(items) = &at.items {
        use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaPropsOrArray;
        if let JSONSchemaPropsOrArray::Schema(item) = items {
            walk(&format!("{path}[]"), item, see);
        }
    }
}

#[test]
fn every_field_is_explained() {
    for crd in api::crds() {
        let kind = &crd.spec.names.kind;
        walk(kind, schema(&crd), &mut |path, at| {
            let upstream =
                path.contains(".conditions") || path.contains(".selector.") || path.ends_with("[]");
            let root = path == kind.as_str()
                || path.ends_with(".metadata")
                || path == format!("{kind}.status");
            assert!(
                upstream || root || at.description.is_some(),
                "{path} has no description"
            );
        });
    }
}

/// What a real kube-apiserver demands of a structural schema, as far as our types could break it.
#[test]
fn every_field_has_a_type_or_says_why_not() {
    for crd in api::crds() {
        walk(&crd.spec.names.kind, schema(&crd), &mut |path, at| {
            let escapes = at.x_kubernetes_int_or_string == Some(true)
                || at.x_kubernetes_preserve_unknown_fields == Some(true);
            assert!(at.type_.is_some() || escapes, "{path} has no type");
            assert!(at.any_of.is_none() || escapes, "{path} uses anyOf");
            assert!(at.one_of.is_none(), "{path} uses oneOf");
        });
    }
}

#[test]
fn every_kind_shows_what_a_person_looks_for() {
    for crd in api::crds() {
        let kind = &crd.spec.names.kind;
        let columns = crd.spec.versions[0]
            .additional_printer_columns
            .as_ref()
            .unwrap();
        assert!(columns.iter().any(|c| c.name == "Age"), "{kind}");
        assert!(crd.spec.names.short_names.is_some(), "{kind}");
        assert_eq!(
            crd.spec.names.categories.as_deref(),
            Some(&["oxmox".to_owned()][..]),
            "{kind}"
        );
        let beside = crd.spec.versions[0].subresources.as_ref();
        // A permit is gone before anything could be said about it.
        assert!(
            kind == "VMConsole" || beside.is_some_and(|beside| beside.status.is_some()),
            "{kind}"
        );
    }
}

/// A number that the schema lets in and the type does not hold makes the whole object unreadable.
#[test]
fn every_number_has_bounds_its_type_holds() {
    for crd in api::vm::crds() {
        walk(&crd.spec.names.kind, schema(&crd), &mut |path, at| {
            let number = at.type_.as_deref() == Some("integer")
                || at.x_kubernetes_int_or_string == Some(true);
            if !number || path.contains(".status") {
                return;
            }
            let least = if at
                .format
                .as_deref()
                .is_some_and(|it| it.starts_with("uint"))
            {
                0.0
            } else {
                f64::from(i32::MIN)
            };
            assert!(
                at.minimum.is_some_and(|it| it >= least),
                "{path} has no minimum"
            );
            // An amount may be as large as a number can be written.
            let amount = at.pattern.as_deref().is_some_and(|it| it.contains("Gi"));
            let most = f64::from(if at.format.as_deref() == Some("uint32") {
                u32::MAX
            } else {
                i32::MAX.unsigned_abs()
            });
            assert!(
                amount || at.maximum.is_some_and(|it| it <= most),
                "{path} has no maximum"
            );
        });
    }
}
