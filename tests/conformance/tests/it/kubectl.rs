//! What a person types.

use conformance::script;

const APP: &str = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  labels: {app: demo}
data:
  color: blue
  size: \"3\"
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  labels: {app: demo}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: main
        image: registry.test/web:1
        ports: [{containerPort: 80}]
---
apiVersion: v1
kind: Secret
metadata: {name: key, labels: {app: demo}}
stringData: {password: hunter2}
";

const CRD: &str = "\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.$NS.test
spec:
  group: $NS.test
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, shortNames: [wi$NS]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.size}}
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    - {name: Phase, type: string, jsonPath: .status.phase}
    schema:
      openAPIV3Schema:
        type: object
        description: A widget is for testing.
        properties:
          spec:
            type: object
            description: What is wanted.
            required: [size]
            properties:
              size: {type: integer, minimum: 1, maximum: 10, description: How large it is.}
              color: {type: string, enum: [red, blue], default: red, description: Its colour.}
              parts:
                type: array
                description: What it is made of.
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {type: object, required: [name], properties: {name: {type: string}, count: {type: integer}}}
          status:
            type: object
            properties: {phase: {type: string}, size: {type: integer}}
";

const WIDGET: &str = "\
apiVersion: $NS.test/v1
kind: Widget
metadata: {name: one}
spec: {size: 3, parts: [{name: leg, count: 4}]}
";

script!(apply_from_files, async |t| {
    t.file("app.yaml", APP);
    t.run("apply -f app.yaml --dry-run=client").await;
    t.run("apply -f app.yaml --dry-run=server").await;
    t.run("diff -f app.yaml").await;
    t.run("apply -f app.yaml").await;
    t.run("apply -f app.yaml").await;
    t.run("diff -f app.yaml").await;
    t.file(
        "app.yaml",
        &APP.replace("color: blue", "color: green")
            .replace("replicas: 2", "replicas: 3"),
    );
    t.run("diff -f app.yaml").await;
    t.run("apply -f app.yaml").await;
    t.run("get -f app.yaml").await;
    t.run("get configmap settings -o yaml").await;
    t.run("apply view-last-applied configmap settings").await;
    t.file("app.yaml", &APP.replace("  size: \"3\"\n", ""));
    t.run("apply -f app.yaml").await;
    t.run("get configmap settings -o jsonpath={.data}").await;
    t.run("apply -f app.yaml --prune -l app=demo --prune-allowlist=core/v1/ConfigMap")
        .await;
    t.run("replace -f app.yaml").await;
    t.run("replace --force -f app.yaml --grace-period=0").await;
    t.run("delete -f app.yaml").await;
    t.run("delete -f app.yaml --ignore-not-found").await;
    t.run("delete -f app.yaml").await;
});

script!(apply_on_the_server, async |t| {
    let one = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shared}\ndata: {a: one}\n";
    let two = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shared}\ndata: {a: two, b: two}\n";
    t.with("apply --server-side -f - --field-manager=alice", one)
        .await;
    t.with("apply --server-side -f - --field-manager=bob", two)
        .await;
    t.with(
        "apply --server-side -f - --field-manager=bob --force-conflicts",
        two,
    )
    .await;
    t.run("get cm shared -o yaml --show-managed-fields").await;
    t.with(
        "apply --server-side -f - --field-manager=alice --dry-run=server",
        one,
    )
    .await;
    t.with(
        "diff --server-side -f - --field-manager=bob",
        &two.replace("b: two", "b: three"),
    )
    .await;
    t.with("apply -f -", one).await;
    t.with("apply --server-side -f -", one).await;
});

script!(create_by_hand, async |t| {
    t.run("create configmap lit --from-literal=a=1 --from-literal=b=2")
        .await;
    t.run("create configmap lit --from-literal=a=1").await;
    t.file("data.txt", "some text\n");
    t.run("create configmap file --from-file=data.txt").await;
    t.run("create secret generic pass --from-literal=user=admin")
        .await;
    t.run("create serviceaccount robot").await;
    t.run("create role reader --verb=get,list --resource=pods,configmaps")
        .await;
    t.run("create rolebinding reader --role=reader --serviceaccount=$NS:robot")
        .await;
    t.run("create deployment front --image=registry.test/front:1 --replicas=2")
        .await;
    t.run("create service clusterip front --clusterip=None")
        .await;
    t.run("create job once --image=registry.test/job:1").await;
    t.run("create poddisruptionbudget front --selector=app=front --min-available=1")
        .await;
    t.run("create priorityclass $NS --value=1000").await;
    t.run("create namespace $NS").await;
    t.run("run single --image=registry.test/single:1 --restart=Never")
        .await;
    t.run("create configmap dry --from-literal=a=1 --dry-run=client -o yaml")
        .await;
    t.run("create configmap dry --from-literal=a=1 --dry-run=server -o name")
        .await;
    t.run("get configmap,secret,serviceaccount,role,rolebinding,deployment,service,job,pdb,pod")
        .await;
    t.run("get all").await;
    t.run("delete priorityclass $NS").await;
});

script!(get_in_every_shape, async |t| {
    t.with("apply -f -", APP).await;
    t.run("get configmaps --field-selector=metadata.name=settings")
        .await;
    t.run("get cm settings").await;
    t.run("get cm/settings deployment/web").await;
    t.run("get cm settings -o json").await;
    t.run("get cm settings -o yaml").await;
    t.run("get cm settings -o name").await;
    t.run("get cm settings --no-headers").await;
    t.run("get cm settings --show-labels").await;
    t.run("get cm -l app=demo -L app").await;
    t.run("get deployment web -o wide").await;
    t.run("get deployment web -o jsonpath={.spec.replicas}")
        .await;
    t.run("get deployment web -o go-template={{.metadata.name}}")
        .await;
    t.run("get deployment web -o custom-columns=NAME:.metadata.name,IMAGE:.spec.template.spec.containers[0].image").await;
    t.run("get deployment web -o jsonpath='{range .spec.template.spec.containers[*]}{.name}={.image}{end}'").await;
    t.run("get deploy,cm -l app=demo --sort-by=.metadata.name")
        .await;
    t.run("get secrets --chunk-size=1").await;
    t.run("get secret key -o jsonpath={.data.password}").await;
    t.run("get pods").await;
    t.run("get cm none").await;
    t.run("get cm settings none").await;
    t.run("get cm none --ignore-not-found").await;
    t.run("get nonsense").await;
    t.run("get cm settings -o nonsense").await;
    t.run("get --raw /api/v1/namespaces/$NS/configmaps/settings")
        .await;
    t.run("get --raw /nonsense").await;
    t.run("get namespace $NS").await;
    t.run("get cm -A --field-selector=metadata.name=settings,metadata.namespace=$NS")
        .await;
    t.run("get deployment web --subresource=scale").await;
});

script!(watch_and_wait, async |t| {
    t.with("apply -f -", APP).await;
    t.run("wait cm/settings --for=jsonpath={.data.color}=blue --timeout=5s")
        .await;
    t.run("wait cm/settings --for=jsonpath={.data.color}=red --timeout=1s")
        .await;
    t.run("wait deployment/web --for=condition=Available --timeout=1s")
        .await;
    t.run("patch deployment web --subresource=status --type=merge -p '{\"status\":{\"conditions\":[{\"type\":\"Available\",\"status\":\"True\",\"reason\":\"x\",\"message\":\"y\"}]}}'").await;
    t.run("wait deployment/web --for=condition=Available --timeout=5s")
        .await;
    t.run("get cm settings --watch --request-timeout=2s").await;
    t.run("get cm settings --watch-only --request-timeout=1s")
        .await;
    t.run("get cm settings -w --output-watch-events --request-timeout=1s -o name")
        .await;
    t.run("wait cm/none --for=delete --timeout=1s").await;
    t.run("wait cm/none --for=condition=Ready --timeout=1s")
        .await;
    t.run("delete cm settings --wait").await;
    t.run("wait cm/settings --for=delete --timeout=5s").await;
    t.run("wait --for=create cm/settings --timeout=1s").await;
});

script!(change_in_place, async |t| {
    t.with("apply -f -", APP).await;
    t.run("label cm settings tier=back").await;
    t.run("label cm settings tier=front").await;
    t.run("label cm settings tier=front --overwrite").await;
    t.run("label cm settings tier-").await;
    t.run("label cm settings 'bad key=x'").await;
    t.run("label cm --all stage=test").await;
    t.run("annotate cm settings note=before-edit").await;
    t.run("annotate cm settings note- other=x").await;
    t.run("patch cm settings -p '{\"data\":{\"color\":\"before-edit\"}}'")
        .await;
    t.run("patch cm settings --type=merge -p '{\"data\":{\"size\":null}}'")
        .await;
    t.run("patch cm settings --type=json -p '[{\"op\":\"add\",\"path\":\"/data/new\",\"value\":\"1\"}]'").await;
    t.run("patch cm settings --type=json -p '[{\"op\":\"remove\",\"path\":\"/data/none\"}]'")
        .await;
    t.run("patch cm settings -p nonsense").await;
    t.run("patch cm settings -p '{\"data\":{}}'").await;
    t.run("edit cm settings").await;
    t.run("get cm settings -o jsonpath={.data.color}").await;
    t.run("scale deployment web --replicas=5").await;
    t.run("scale deployment web --current-replicas=1 --replicas=2")
        .await;
    t.run("get deployment web -o jsonpath={.spec.replicas}")
        .await;
    t.run("set image deployment/web main=registry.test/web:2")
        .await;
    t.run("set env deployment/web A=1").await;
    t.run("set resources deployment/web --limits=cpu=200m,memory=512Mi")
        .await;
    t.run("get deployment web -o jsonpath={.spec.template.spec.containers[0]}")
        .await;
    t.run("autoscale nonsense web").await;
});

script!(delete_in_every_way, async |t| {
    for name in ["a", "b", "c", "d"] {
        t.run(&format!("create configmap {name} --from-literal=x=1"))
            .await;
        t.run(&format!("label cm {name} group=one")).await;
    }
    t.run("delete cm a --cascade=background").await;
    t.run("delete cm b --cascade=foreground").await;
    t.run("delete cm c --cascade=orphan").await;
    t.run("delete cm c").await;
    t.run("delete cm d --dry-run=server").await;
    t.run("delete cm d --cascade=sideways").await;
    t.run("delete cm -l group=one").await;
    t.run("delete cm -l group=one").await;
    t.run("delete cm").await;
    t.run("create configmap held --from-literal=x=1").await;
    t.run("patch cm held -p '{\"metadata\":{\"finalizers\":[\"example.com/hold\"]}}'")
        .await;
    t.run("delete cm held --wait=false").await;
    t.run("delete cm held --timeout=1s").await;
    t.run("patch cm held --type=merge -p '{\"metadata\":{\"finalizers\":null}}'")
        .await;
    t.run("get cm held").await;
    t.run("delete pod none --grace-period=0 --force").await;
    t.run("delete ns none").await;
});

script!(describe_and_events, async |t| {
    t.with("apply -f -", APP).await;
    t.with("create -f -", "apiVersion: v1\nkind: Event\nmetadata: {name: settings.1}\ninvolvedObject: {apiVersion: v1, kind: ConfigMap, name: settings, namespace: $NS}\nreason: Seen\nmessage: it was seen\ntype: Normal\nsource: {component: tester}\nfirstTimestamp: 2024-01-01T00:00:00Z\nlastTimestamp: 2024-01-01T00:00:00Z\ncount: 3\n").await;
    t.run("events --for=configmap/settings").await;
    t.run("get events --field-selector=reason=Seen").await;
    t.run("events --types=Warning").await;
    t.run("describe cm settings").await;
    t.run("describe secret key").await;
    t.run("describe deployment web").await;
    t.run("describe namespace $NS").await;
    t.run("describe cm none").await;
    t.run("create role r --verb=get --resource=pods").await;
    t.run("describe role r").await;
    t.with("apply -f -", "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: main, image: 'registry.test/p:1'}]}\n").await;
    t.run("describe pod p").await;
});

script!(explain, async |t| {
    // Descriptions of the built-in kinds are Kubernetes' prose, which ours does not carry.
    let shape = |line: &str| {
        line.contains("\t<")
            || line.starts_with("FIELD:")
            || line.starts_with("KIND")
            || line.starts_with("VERSION")
            || line.starts_with("GROUP")
            || line.starts_with("error")
    };
    t.only("explain configmap", shape).await;
    t.only("explain deployment.spec.strategy", shape).await;
    t.only("explain deploy.spec.template.spec.containers.ports", shape)
        .await;
    t.only("explain pod.spec.nonsense", shape).await;
    t.run("explain nonsense").await;
    t.with("apply -f -", CRD).await;
    t.run("wait --for=condition=Established crd/widgets.$NS.test --timeout=20s")
        .await;
});

script!(custom_kinds, async |t| {
    t.with("create -f -", CRD).await;
    t.run("wait --for=condition=Established crd/widgets.$NS.test --timeout=20s")
        .await;
    t.run("get crd widgets.$NS.test -o jsonpath={.status.acceptedNames.kind}")
        .await;
    t.with("apply -f -", WIDGET).await;
    t.with("apply -f -", &WIDGET.replace("size: 3", "size: 30"))
        .await;
    t.with("apply -f -", &WIDGET.replace("size: 3", "size: three"))
        .await;
    t.with(
        "apply -f -",
        &WIDGET.replace("size: 3", "size: 3, nonsense: 1"),
    )
    .await;
    t.with(
        "apply -f - --validate=warn",
        &WIDGET.replace("size: 3", "size: 3, nonsense: 1"),
    )
    .await;
    t.with(
        "apply -f - --validate=false",
        &WIDGET.replace("size: 3", "size: 4, nonsense: 1"),
    )
    .await;
    t.run("get widgets").await;
    t.run("get wi$NS one -o yaml").await;
    t.run("get widgets.v1.$NS.test one -o jsonpath={.spec.color}")
        .await;
    t.run("patch widget one --type=merge -p '{\"spec\":{\"color\":\"green\"}}'")
        .await;
    t.run("patch widget one -p '{\"spec\":{\"color\":\"blue\"}}'")
        .await;
    t.run(
        "patch widget one --subresource=status --type=merge -p '{\"status\":{\"phase\":\"Up\"}}'",
    )
    .await;
    t.run("scale widget one --replicas=7").await;
    t.run("get widget one").await;
    t.run("describe widget one").await;
    // Its own descriptions are in the next one; here are Kubernetes' of version and kind.
    let shape = |line: &str| line.contains("\t<") || !line.starts_with("    ");
    t.only("explain widget --api-version=$NS.test/v1", shape)
        .await;
    t.run("explain widget.spec --api-version=$NS.test/v1 --recursive")
        .await;
    t.run("api-resources --api-group=$NS.test").await;
    t.run("delete widget one").await;
    t.run("delete crd widgets.$NS.test").await;
});

script!(access, async |t| {
    t.run("create serviceaccount robot").await;
    t.run("create role reader --verb=get,list --resource=configmaps")
        .await;
    t.run("create rolebinding reader --role=reader --serviceaccount=$NS:robot")
        .await;
    t.run("create token robot").await;
    t.run("create token robot --duration=10m").await;
    t.run("create token robot --duration=1m").await;
    t.run("create token none").await;
    t.run("auth can-i get configmaps").await;
    t.run("auth can-i get configmaps --as=system:serviceaccount:$NS:robot")
        .await;
    t.run("auth can-i delete configmaps --as=system:serviceaccount:$NS:robot")
        .await;
    t.run("auth can-i get configmaps -n default --as=system:serviceaccount:$NS:robot")
        .await;
    t.run("auth can-i '*' '*'").await;
    t.run("auth can-i get /version --as=jane").await;
    t.run("auth can-i fly planes").await;
    t.run("get cm --as=system:serviceaccount:$NS:robot").await;
    t.run("get secrets --as=system:serviceaccount:$NS:robot")
        .await;
    t.run("auth whoami --as=jane --as-group=dev").await;
    t.run("auth can-i --list --as=system:serviceaccount:$NS:robot")
        .await;
    t.run("auth reconcile -f -").await;
});

script!(the_house, async |t| {
    t.only("version -o json", |line| {
        line.contains("major") || line.contains("minor")
    })
    .await;
    t.run("api-resources --api-group=apiextensions.k8s.io")
        .await;
    t.run("api-resources --api-group=rbac.authorization.k8s.io")
        .await;
    t.run("api-resources --api-group=rbac.authorization.k8s.io -o wide")
        .await;
    t.run("api-resources --api-group=policy").await;
    t.only("api-resources --namespaced=false -o name", |line| {
        matches!(
            line,
            "namespaces" | "nodes" | "persistentvolumes" | "storageclasses.storage.k8s.io"
        )
    })
    .await;
    t.only("api-versions", |line| {
        matches!(
            line,
            "v1" | "apps/v1"
                | "batch/v1"
                | "policy/v1"
                | "storage.k8s.io/v1"
                | "coordination.k8s.io/v1"
        )
    })
    .await;
    t.run("cluster-info").await;
    t.run("get --raw /readyz").await;
    t.run("config view --minify -o jsonpath={.kind}").await;
    t.with("apply -f -", "apiVersion: v1\nkind: Node\nmetadata: {name: $NS}\nspec: {providerID: 'proxmox://one/100'}\n").await;
    t.run("get node $NS").await;
    t.run("cordon $NS").await;
    t.run("get node $NS").await;
    t.run("uncordon $NS").await;
    t.run("taint node $NS key=value:NoSchedule").await;
    t.run("describe node $NS").await;
    t.with("apply -f -", "apiVersion: v1\nkind: Pod\nmetadata: {name: guest, labels: {app: guest}}\nspec: {nodeName: $NS, containers: [{name: main, image: 'registry.test/p:1'}]}\n").await;
    t.run("drain $NS --force --dry-run=server").await;
    t.run("delete node $NS").await;
});

script!(bad_input, async |t| {
    t.with(
        "apply -f -",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: Bad_Name}\n",
    )
    .await;
    t.with("apply -f -", "apiVersion: v1\nkind: ConfigMap\n")
        .await;
    t.with(
        "apply -f -",
        "apiVersion: v1\nkind: Nonsense\nmetadata: {name: a}\n",
    )
    .await;
    t.with(
        "apply -f -",
        "apiVersion: nonsense.test/v1\nkind: Thing\nmetadata: {name: a}\n",
    )
    .await;
    t.with("apply -f -", "this is not yaml: [").await;
    t.with("apply -f -", "").await;
    t.with(
        "apply -f -",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: 1}\n",
    )
    .await;
    t.with(
        "apply -f -",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndta: {x: '1'}\n",
    )
    .await;
    t.with(
        "apply -f - --validate=ignore",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\ndta: {x: '1'}\n",
    )
    .await;
    t.with(
        "create -f -",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {replicas: -1}\n",
    )
    .await;
    t.with(
        "create -f -",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: elsewhere}\n",
    )
    .await;
    t.with(
        "create -n no-such-namespace -f -",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
    )
    .await;
    t.with(
        "replace -f -",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: none}\n",
    )
    .await;
    t.run("apply -f no-such-file.yaml").await;
    t.run("get cm -l 'bad selector='").await;
    t.run("get cm --field-selector=data.x=1").await;
    t.run("frobnicate").await;
});
