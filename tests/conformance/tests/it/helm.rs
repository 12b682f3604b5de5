//! Helm: a chart with definitions and hooks, through its whole life.

use conformance::script;

const CRD: &str = "\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gears.$NS.test}
spec:
  group: $NS.test
  scope: Namespaced
  names: {plural: gears, singular: gear, kind: Gear}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {teeth: {type: integer}}}}
";

fn chart(version: &str) -> [(&'static str, String); 8] {
    let hook = |when: &str, policy: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{{{ .Release.Name }}}}-{when}\n  annotations:\n    helm.sh/hook: {when}\n    helm.sh/hook-delete-policy: {policy}\n    helm.sh/hook-weight: \"1\"\ndata:\n  revision: \"{{{{ .Release.Revision }}}}\"\n"
        )
    };
    [
        ("chart/Chart.yaml", format!("apiVersion: v2\nname: demo\nversion: {version}\nappVersion: \"1\"\n")),
        ("chart/values.yaml", "color: blue\nteeth: 12\n".into()),
        ("chart/crds/gear.yaml", CRD.into()),
        ("chart/templates/settings.yaml", format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {{{{ .Release.Name }}}}-settings, labels: {{chart: demo-{version}}}}}\ndata:\n  color: {{{{ .Values.color }}}}\n  crds: \"{{{{ .Capabilities.APIVersions.Has \"apiextensions.k8s.io/v1\" }}}}\"\n  kube: \"{{{{ .Capabilities.KubeVersion.Major }}}}\"\n")),
        ("chart/templates/gear.yaml", "apiVersion: $NS.test/v1\nkind: Gear\nmetadata: {name: {{ .Release.Name }}}\nspec: {teeth: {{ .Values.teeth }}}\n".into()),
        ("chart/templates/hooks.yaml", [hook("pre-install", "before-hook-creation"), hook("post-upgrade", "hook-succeeded"), hook("pre-delete", "hook-succeeded"), hook("post-rollback", "before-hook-creation")].join("---\n")),
        ("chart/templates/secret.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: {{ .Release.Name }}-key}\nstringData: {password: s3cret}\n".into()),
        ("chart/templates/NOTES.txt", "Installed {{ .Release.Name }}, revision {{ .Release.Revision }}.\n".into()),
    ]
}

script!(a_release_lives_and_dies, async |t| {
    for (name, content) in chart("1.0.0") {
        t.file(name, &content);
    }
    t.helm("install demo chart --dry-run=server").await;
    t.helm("install demo chart").await;
    t.helm("install demo chart").await;
    t.run("get cm,secret,gear -o name").await;
    t.run("get cm demo-settings -o jsonpath={.data}").await;
    t.run("get cm demo-settings -o jsonpath={.metadata.labels}")
        .await;
    t.run("get gear demo -o jsonpath={.spec}").await;
    t.helm("status demo").await;
    t.helm("list -o json").await;
    for (name, content) in chart("1.1.0") {
        t.file(name, &content);
    }
    t.helm("upgrade demo chart --set color=green --set teeth=24")
        .await;
    t.run("get cm demo-settings -o jsonpath={.data.color}")
        .await;
    t.run("get gear demo -o jsonpath={.spec.teeth}").await;
    t.run("get cm -o name").await;
    t.helm("upgrade demo chart --set teeth=many").await;
    t.helm("history demo -o json").await;
    t.helm("rollback demo 1").await;
    t.run("get cm demo-settings -o jsonpath={.data.color}")
        .await;
    t.run("get gear demo -o jsonpath={.spec.teeth}").await;
    t.helm("get values demo --revision 2 -o json").await;
    t.helm("upgrade --install demo chart --reuse-values --wait --timeout 20s")
        .await;
    t.helm("uninstall demo --wait --timeout 20s").await;
    t.run("get cm,secret -o name").await;
    t.run("get crd gears.$NS.test -o name").await;
    t.helm("uninstall demo").await;
    t.helm("list -o json").await;
});
